{{/* Which values contradict each other? What one value alone may be stands in values.schema.json. */}}

{{- define "redisworld.validate" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is required: the image with your application, built FROM redisworld (docs/kubernetes.md, \"Your image\")" -}}
{{- end -}}
{{- if eq .Values.enabled false -}}
{{- fail "enabled is what a parent chart's condition looks at; the chart itself cannot be off" -}}
{{- end -}}
{{- $fullname := include "redisworld.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
{{- fail (printf "objects would be called %s-…, which Kubernetes takes for no Service: set fullnameOverride to small letters, digits and -, beginning with a letter" $fullname) -}}
{{- end -}}
{{- include "redisworld.validateLabels" (dict "at" "commonLabels" "labels" .Values.commonLabels) -}}
{{- include "redisworld.validateLabels" (dict "at" "defaults.podLabels" "labels" .Values.defaults.podLabels) -}}
{{- include "redisworld.validateLabels" (dict "at" "alwaysOn.podLabels" "labels" .Values.alwaysOn.podLabels) -}}
{{- include "redisworld.validateRedis" . -}}
{{- include "redisworld.validateMonitoring" . -}}
{{- range $name, $pool := include "redisworld.pools" . | fromYaml -}}
{{- include "redisworld.validatePool" (dict "root" $ "at" (printf "pools.%s" $name) "pool" $pool) -}}
{{- end -}}
{{- if and (include "redisworld.mayBeAtZero" .) (not (include "redisworld.runsTimers" .)) -}}
{{- fail "no pool keeps a pod and the always-on pod does not look after timers, so nobody would promote timers: set alwaysOn.enabled with alwaysOn.timers=auto, or autoscaling.minReplicas of a pool to at least 1" -}}
{{- end -}}
{{- end }}

{{/* Takes (dict "at" … "labels" …). */}}
{{- define "redisworld.validateLabels" -}}
{{- range $key := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "redisworld/pool" -}}
{{- if hasKey ($.labels | default dict) $key -}}
{{- fail (printf "%s: by %s the chart's objects find their pods: use a label of your own" $.at $key) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Seconds of a duration of Prometheus, like 1m30s. */}}
{{- define "redisworld.seconds" -}}
{{- $sum := 0.0 -}}
{{- $units := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 "w" 604800 "y" 31536000 -}}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9]+" .) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end }}

{{- define "redisworld.validateMonitoring" -}}
{{- range $name, $monitor := .Values.metrics -}}
{{- if and (kindIs "map" $monitor) (dig "enabled" false ($monitor | default dict)) -}}
{{- if gt (include "redisworld.seconds" $monitor.scrapeTimeout | float64) (include "redisworld.seconds" $monitor.interval | float64) -}}
{{- fail (printf "metrics.%s.scrapeTimeout (%s) is longer than its interval (%s): the Prometheus Operator would leave it out" $name $monitor.scrapeTimeout $monitor.interval) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.alwaysOn.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs alwaysOn.enabled: it scrapes the exporter, which runs there" -}}
{{- end -}}
{{- $alerts := list -}}
{{- range $path, $_ := .Files.Glob "rules/*.yaml" -}}
{{- range $group := ($.Files.Get $path | fromYaml).groups -}}
{{- range $rule := $group.rules -}}
{{- $alerts = append $alerts (get $rule "alert") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.prometheusRule.disabled -}}
{{- if not (has . $alerts) -}}
{{- fail (printf "prometheusRule.disabled: there is no alert %s; there are %s" . ($alerts | compact | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What stands twice in a list that Kubernetes keeps by name. Takes (dict "at" … "template" (a pod template)). */}}
{{- define "redisworld.validateTemplate" -}}
{{- $at := .at -}}
{{- $lists := dict -}}
{{- $containers := concat (.template.spec.initContainers | default list) .template.spec.containers -}}
{{- range $kind, $items := dict "container" $containers "volume" .template.spec.volumes -}}
{{- range $items -}}
{{- $_ := set $lists $kind (append (get $lists $kind | default list) .name) -}}
{{- end -}}
{{- end -}}
{{- range $container := $containers -}}
{{- $variables := printf "variable of container %s" $container.name -}}
{{- $mounts := printf "mount of container %s" $container.name -}}
{{- range $container.env -}}
{{- $_ := set $lists $variables (append (get $lists $variables | default list) .name) -}}
{{- end -}}
{{- range $container.volumeMounts -}}
{{- $_ := set $lists $mounts (append (get $lists $mounts | default list) .mountPath) -}}
{{- end -}}
{{- end -}}
{{- range $kind, $names := $lists -}}
{{- range $name := uniq $names -}}
{{- if gt (sub (len $names) (without $names $name | len)) 1 -}}
{{- fail (printf "%s: the %s %s would be there twice: the chart makes one of that name itself" $at $kind $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "redisworld.validateRedis" -}}
{{- $redis := .Values.redis -}}
{{- $ways := list -}}
{{- if $redis.url }}{{ $ways = append $ways "redis.url" }}{{ end -}}
{{- if $redis.existingSecretUrlKey }}{{ $ways = append $ways "redis.existingSecretUrlKey" }}{{ end -}}
{{- if $redis.sentinel.nodes }}{{ $ways = append $ways "redis.sentinel.nodes" }}{{ end -}}
{{- if $redis.cluster.nodes }}{{ $ways = append $ways "redis.cluster.nodes" }}{{ end -}}
{{- if $redis.trial.enabled }}{{ $ways = append $ways "redis.trial.enabled" }}{{ end -}}
{{- if not $ways -}}
{{- fail "no Redis: set one of redis.url, redis.existingSecretUrlKey, redis.sentinel.nodes, redis.cluster.nodes, or redis.trial.enabled for trying out" -}}
{{- else if gt (len $ways) 1 -}}
{{- fail (printf "more than one Redis: set only one of %s" (join ", " $ways)) -}}
{{- end -}}
{{- if contains "@" $redis.url -}}
{{- fail "redis.url holds a user or password, which would stand in clear in every pod: use redis.existingSecret (or redis.username and redis.password)" -}}
{{- end -}}
{{- range $name, $key := dict "redis.existingSecretUsernameKey" $redis.existingSecretUsernameKey "redis.sentinel.existingSecretPasswordKey" $redis.sentinel.existingSecretPasswordKey "redis.existingSecretUrlKey" $redis.existingSecretUrlKey -}}
{{- if and $key (not $redis.existingSecret) -}}
{{- fail (printf "%s needs redis.existingSecret, the name of the Secret" $name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $password := dict "redis.password" $redis.password "redis.sentinel.password" $redis.sentinel.password -}}
{{- if and $password $redis.existingSecret -}}
{{- fail (printf "%s and redis.existingSecret are both set: one of them would be ignored" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $redis.sentinel.nodes (not $redis.sentinel.master) -}}
{{- fail "redis.sentinel.nodes needs redis.sentinel.master, the name of the primary that the Sentinels watch" -}}
{{- end -}}
{{- $tls := or (hasPrefix "rediss://" $redis.url) (and $redis.sentinel.nodes $redis.sentinel.tls) (and $redis.cluster.nodes $redis.cluster.tls) $redis.existingSecretUrlKey -}}
{{- if and $redis.tls.existingSecret (not $tls) -}}
{{- fail "redis.tls.existingSecret is set, but nothing speaks TLS: redis.url has to begin with rediss://, or redis.sentinel.tls or redis.cluster.tls to be true" -}}
{{- end -}}
{{- end }}

{{/* Takes (dict "root" $ "at" … "pod" …). */}}
{{- define "redisworld.validatePod" -}}
{{- include "redisworld.validateLabels" (dict "at" (printf "%s.podLabels" .at) "labels" .pod.podLabels) -}}
{{- if not .pod.app -}}
{{- fail (printf "%s has no application: set app, or %s.app, to MODULE[:ATTRIBUTE] of the Workflows object" .at .at) -}}
{{- end -}}
{{- if and .root.Values.deployment.affinity .pod.image.digest (not .pod.image.tag) (not .root.Values.deployment.id) -}}
{{- fail (printf "deployment.affinity needs to know which code %s runs: set deployment.id or image.tag beside image.digest" .at) -}}
{{- end -}}
{{- $least := add (int .pod.drainGraceSeconds) 5 -}}
{{- if lt (int (include "redisworld.terminationGrace" .pod)) (int $least) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds must be at least drainGraceSeconds and 5 (%d): a worker that is killed while it drains leaves its steps to their leases" .at $least) -}}
{{- end -}}
{{- end }}

{{/* Takes (dict "root" $ "at" … "pool" …). */}}
{{- define "redisworld.validatePool" -}}
{{- include "redisworld.validatePod" (dict "root" .root "at" .at "pod" .pool) -}}
{{- $scaling := .pool.autoscaling -}}
{{- if has $scaling.mode (list "hpa" "keda") -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "%s: autoscaling.minReplicas (%d) is above autoscaling.maxReplicas (%d)" .at (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- if eq $scaling.mode "hpa" -}}
{{- if lt (int $scaling.minReplicas) 1 -}}
{{- fail (printf "%s: autoscaling.minReplicas must be at least 1 with autoscaling.mode=hpa; only keda scales to zero" .at) -}}
{{- end -}}
{{- if not (or $scaling.hpa.targetCPUUtilizationPercentage $scaling.hpa.targetMemoryUtilizationPercentage $scaling.hpa.metrics) -}}
{{- fail (printf "%s: autoscaling.mode=hpa has no metric, and Kubernetes would take 80 %% of CPU: set one in autoscaling.hpa" .at) -}}
{{- end -}}
{{- $requests := dig "requests" (dict) .pool.resources -}}
{{- if and $scaling.hpa.targetCPUUtilizationPercentage (not (get $requests "cpu")) -}}
{{- fail (printf "%s: autoscaling.hpa.targetCPUUtilizationPercentage needs resources.requests.cpu, which it is a part of" .at) -}}
{{- end -}}
{{- if and $scaling.hpa.targetMemoryUtilizationPercentage (not (get $requests "memory")) -}}
{{- fail (printf "%s: autoscaling.hpa.targetMemoryUtilizationPercentage needs resources.requests.memory, which it is a part of" .at) -}}
{{- end -}}
{{- end -}}
{{- if eq $scaling.mode "keda" -}}
{{- if and .root.Values.redis.existingSecretUrlKey (not $scaling.keda.address) -}}
{{- fail (printf "%s: KEDA cannot take Redis' address out of a URL in a Secret: set autoscaling.keda.address and autoscaling.keda.authenticationRef" .at) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $scaling.mode "keda") (not $scaling.keda.defaultQueue) (not .pool.queues) -}}
{{- fail (printf "%s: autoscaling.keda.defaultQueue is false and queues is empty, so KEDA would have nothing to look at" .at) -}}
{{- end -}}
{{- $budget := .pool.podDisruptionBudget -}}
{{- if and $budget.enabled $budget.unhealthyPodEvictionPolicy (not (semverCompare ">=1.27.0-0" .root.Capabilities.KubeVersion.Version)) -}}
{{- fail (printf "%s: podDisruptionBudget.unhealthyPodEvictionPolicy needs Kubernetes 1.27 or newer" .at) -}}
{{- end -}}
{{- if and $budget.enabled (not (kindIs "invalid" $budget.minAvailable)) (not (kindIs "invalid" $budget.maxUnavailable)) -}}
{{- fail (printf "%s: podDisruptionBudget.minAvailable and podDisruptionBudget.maxUnavailable are both set: set the other one to null" .at) -}}
{{- end -}}
{{- end }}
