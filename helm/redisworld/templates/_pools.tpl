{{/* Which pools are there, and with which values of their own? */}}

{{/* A map of pools by name, each complete: its own keys over `defaults`, `autoscaling` and `podDisruptionBudget`. */}}
{{- define "redisworld.pools" -}}
{{- $pools := dict -}}
{{- range $name, $own := .Values.pools -}}
{{- if not (kindIs "invalid" $own) -}}
{{- $base := deepCopy $.Values.defaults -}}
{{- $_ := set $base "replicas" 1 -}}
{{- $_ := set $base "app" $.Values.app -}}
{{- $_ := set $base "image" (deepCopy $.Values.image) -}}
{{- $_ := set $base "autoscaling" (deepCopy $.Values.autoscaling) -}}
{{- $_ := set $base "podDisruptionBudget" (deepCopy $.Values.podDisruptionBudget) -}}
{{- $_ := set $pools $name (mergeOverwrite $base (deepCopy $own)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $pools -}}
{{- end }}

{{/* The always-on pod takes the keys of a pool, but for those about an application. */}}
{{- define "redisworld.alwaysOn" -}}
{{- $base := deepCopy .Values.defaults -}}
{{- $_ := set $base "image" (deepCopy .Values.image) -}}
{{- mergeOverwrite $base (deepCopy .Values.alwaysOn) | toYaml -}}
{{- end }}

{{/* "true" where every pool may be without a pod, so that nobody would promote timers. */}}
{{- define "redisworld.mayBeAtZero" -}}
{{- $kept := 0 -}}
{{- range $pool := include "redisworld.pools" . | fromYaml -}}
{{- if eq $pool.autoscaling.mode "none" -}}
{{- $kept = add $kept $pool.replicas -}}
{{- else if ne $pool.autoscaling.mode "external" -}}
{{- $kept = add $kept $pool.autoscaling.minReplicas -}}
{{- end -}}
{{- end -}}
{{- if eq (int $kept) 0 -}}true{{- end -}}
{{- end }}

{{- define "redisworld.runsTimers" -}}
{{- if not .Values.alwaysOn.enabled -}}
{{- else if eq .Values.alwaysOn.timers "always" -}}true
{{- else if eq .Values.alwaysOn.timers "auto" -}}{{ include "redisworld.mayBeAtZero" . }}
{{- end -}}
{{- end }}

{{/* Takes (dict "root" $ "image" …): the id of this code. A digest has a colon, which no id may have. */}}
{{- define "redisworld.deploymentId" -}}
{{- .root.Values.deployment.id | default .image.tag | default .root.Chart.AppVersion -}}
{{- end }}

{{/* Streams that a pool scales on, one a line. Takes (dict "root" $ "pool" …); named as in redisworld/keys.py. */}}
{{- define "redisworld.streams" -}}
{{- $pins := list "" -}}
{{- if .root.Values.deployment.affinity -}}
{{- $pins = append $pins (printf "@%s" (include "redisworld.deploymentId" (dict "root" .root "image" .pool.image))) -}}
{{- end -}}
{{- range $number := until (int .root.Values.runs.partitions) -}}
{{- $tag := printf "rw:{%s:%d}:" $.root.Values.runs.namespace $number -}}
{{- range $pin := $pins -}}
{{- if $.pool.autoscaling.keda.defaultQueue }}
{{ $tag }}workflows{{ $pin }}
{{ $tag }}steps{{ $pin }}
{{- end -}}
{{- range $queue := $.pool.queues }}
{{ $tag }}steps:{{ $queue }}{{ $pin }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
