{{/* What does a pod look like, and the containers in it? */}}

{{/* Seconds from SIGTERM to SIGKILL: the grace of bodies, and time to hand back the rest and to leave (4 s at most). */}}
{{- define "redisworld.terminationGrace" -}}
{{- if kindIs "invalid" .terminationGracePeriodSeconds -}}
{{- add (int .drainGraceSeconds) 10 -}}
{{- else -}}
{{- int .terminationGracePeriodSeconds -}}
{{- end -}}
{{- end }}

{{/* The volume mounts of every container. Takes (dict "root" $). */}}
{{- define "redisworld.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.redis.tls.existingSecret }}
- {name: redis-tls, mountPath: /etc/redisworld/tls, readOnly: true}
{{- end }}
{{- end }}

{{/* A container of a worker. Takes (dict "root" $ "name" … "pod" …); "pod" is a pool. */}}
{{- define "redisworld.worker" -}}
{{- $root := .root -}}
{{- $pod := .pod -}}
name: {{ .name }}
image: {{ include "redisworld.image" (dict "root" $root "image" $pod.image) }}
imagePullPolicy: {{ $pod.image.pullPolicy }}
command: {{ toJson $pod.command }}
args: {{ toJson (prepend ($pod.extraArgs | default list) $pod.app) }}
env:
  {{- include "redisworld.redisEnv" $root | nindent 2 }}
  - name: REDISWORLD_CONCURRENCY
    value: {{ $pod.concurrency | quote }}
  {{- with $pod.queues }}
  - name: REDISWORLD_QUEUE
    value: {{ join "," . | quote }}
  {{- end }}
  - name: REDISWORLD_GRACE_MS
    value: {{ printf "%ds" (int $pod.drainGraceSeconds) | quote }}
  - name: REDISWORLD_DEPLOYMENT
    value: {{ include "redisworld.deploymentId" (dict "root" $root "image" $pod.image) | quote }}
  - name: REDISWORLD_AFFINITY
    value: {{ $root.Values.deployment.affinity | quote }}
  {{- include "redisworld.commonEnv" (dict "root" $root "pod" $pod "port" 9464) | nindent 2 }}
{{- include "redisworld.containerRest" (dict "root" $root "pod" $pod "portName" "metrics" "port" 9464) }}
{{- end }}

{{- define "redisworld.commonEnv" -}}
- name: REDISWORLD_METRICS_PORT
  value: {{ .port | quote }}
- name: REDISWORLD_LOG_LEVEL
  value: {{ .root.Values.logs.level | quote }}
- name: REDISWORLD_LOG_FORMAT
  value: {{ .root.Values.logs.format | quote }}
{{- range $name, $value := .pod.settings }}
- name: REDISWORLD_{{ upper $name }}
  value: {{ (kindIs "float64" $value) | ternary (int64 $value | toString) (toString $value) | quote }}
{{- end }}
{{- with .pod.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* From envFrom to mounts. Takes (dict "root" $ "pod" … "portName" … "port" …). */}}
{{- define "redisworld.containerRest" -}}
{{- with .pod.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - {name: {{ .portName }}, containerPort: {{ .port }}, protocol: TCP}
{{- $pod := .pod -}}
{{- $port := .portName -}}
{{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" }}
{{- with get $pod $probe }}
{{ $probe }}:
  {{- $asked := . }}
  {{- /* Values are laid over the defaults, so a probe of another kind has theirs beside its own. */}}
  {{- if or .exec .tcpSocket .grpc }}
  {{- $asked = omit . "httpGet" }}
  {{- end }}
  {{- regexReplaceAll "port: (metrics|9464)\\b" (toYaml $asked) (printf "port: %s" $port) | nindent 2 }}
{{- end }}
{{- end }}
{{- with .pod.lifecycle }}
lifecycle:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "redisworld.withoutNulls" .pod.securityContext | nindent 2 }}
volumeMounts:
  {{- include "redisworld.mounts" . | nindent 2 }}
  {{- with .pod.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* A key that a user sets to null is left out. */}}
{{- define "redisworld.withoutNulls" -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $kept $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end }}

{{/* A pod template. Takes (dict "root" $ "pod" … "component" … "pool" … "port" … "containers" (list of texts)). */}}
{{- define "redisworld.podTemplate" -}}
{{- $root := .root -}}
{{- $pod := .pod -}}
{{- $annotations := merge (dict) ($pod.podAnnotations | default dict) ($root.Values.commonAnnotations | default dict) -}}
{{- if $root.Values.metrics.scrapeAnnotations -}}
{{- $_ := set $annotations "prometheus.io/scrape" "true" -}}
{{- $_ := set $annotations "prometheus.io/path" "/metrics" -}}
{{- $_ := set $annotations "prometheus.io/port" (toString .port) -}}
{{- end -}}
{{- with include (print $root.Template.BasePath "/secret.yaml") $root | trim -}}
{{- /* a new password reaches only pods that start anew */ -}}
{{- $_ := set $annotations "checksum/redis" (sha256sum .) -}}
{{- end -}}
metadata:
  labels:
    {{- include "redisworld.labels" (merge (dict "labels" $pod.podLabels) .) | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "redisworld.serviceAccountName" $root | quote }}
  automountServiceAccountToken: {{ $root.Values.serviceAccount.automount }}
  # A Service called redisworld-… would otherwise put REDISWORLD_… variables of its own into every container.
  enableServiceLinks: false
  {{- with include "redisworld.pullSecrets" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "redisworld.terminationGrace" $pod }}
  securityContext:
    {{- include "redisworld.withoutNulls" $pod.podSecurityContext | nindent 4 }}
  {{- range $key := list "priorityClassName" "runtimeClassName" "dnsPolicy" }}
  {{- with get $pod $key }}
  {{ $key }}: {{ . | quote }}
  {{- end }}
  {{- end }}
  {{- range $key := list "dnsConfig" "hostAliases" "nodeSelector" "tolerations" }}
  {{- with get $pod $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with include "redisworld.placement" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $pod.extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    {{- range .containers }}
    - {{ . | nindent 6 | trim }}
    {{- end }}
    {{- with $pod.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ $pod.tmpSizeLimit }}}
    {{- with $root.Values.redis.tls.existingSecret }}
    - name: redis-tls
      secret: {secretName: {{ . | quote }}, defaultMode: 0444}
    {{- end }}
    {{- with $pod.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* What follows `strategy:`. A Recreate has the default's rollingUpdate beside it, which Kubernetes refuses. */}}
{{- define "redisworld.strategy" -}}
{{- with . -}}
{{- ternary (omit . "rollingUpdate") . (eq .type "Recreate") | toYaml -}}
{{- end -}}
{{- end }}

{{/* Where pods go. Takes what podTemplate takes. */}}
{{- define "redisworld.placement" -}}
{{- $selector := include "redisworld.selector" . | fromYaml -}}
{{- $affinity := deepCopy (.pod.affinity | default dict) -}}
{{- if ne .pod.antiAffinity "none" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $selector) -}}
{{- $rule := dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) -}}
{{- if eq .pod.antiAffinity "soft" -}}
{{- $weighted := dict "weight" 100 "podAffinityTerm" $term -}}
{{- $rule = dict "preferredDuringSchedulingIgnoredDuringExecution" (list $weighted) -}}
{{- end -}}
{{- $affinity = merge $affinity (dict "podAntiAffinity" $rule) -}}
{{- end -}}
{{- with $affinity -}}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ merge (dict) . (dict "labelSelector" (dict "matchLabels" $selector)) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end }}
