{{/* How do containers, and KEDA, reach Redis? */}}

{{- define "redisworld.trialName" -}}
{{ include "redisworld.fullname" . }}-trial-redis
{{- end }}

{{- define "redisworld.secretName" -}}
{{- default (printf "%s-redis" (include "redisworld.fullname" .)) .Values.redis.existingSecret }}
{{- end }}

{{/* "true" when there is a password to refer to. */}}
{{- define "redisworld.hasPassword" -}}
{{- if or .Values.redis.password (and .Values.redis.existingSecret (not .Values.redis.existingSecretUrlKey)) -}}true{{- end -}}
{{- end }}

{{/* The Secret's key with the password of the Sentinels themselves, if they have one. */}}
{{- define "redisworld.sentinelPasswordKey" -}}
{{- if .Values.redis.sentinel.existingSecretPasswordKey -}}
{{- .Values.redis.sentinel.existingSecretPasswordKey -}}
{{- else if .Values.redis.sentinel.password -}}
sentinel-password
{{- end -}}
{{- end }}

{{/* The URL without user and password; what TLS needs stands in its query. */}}
{{- define "redisworld.url" -}}
{{- $redis := .Values.redis -}}
{{- $url := $redis.url -}}
{{- if $redis.trial.enabled -}}
{{- $url = printf "redis://%s:6379/0" (include "redisworld.trialName" .) -}}
{{- else if $redis.sentinel.nodes -}}
{{- $scheme := ternary "rediss+sentinel" "redis+sentinel" $redis.sentinel.tls -}}
{{- $url = printf "%s://%s/%s/%d" $scheme (join "," $redis.sentinel.nodes) $redis.sentinel.master (int $redis.sentinel.database) -}}
{{- else if $redis.cluster.nodes -}}
{{- $url = printf "%s://%s" (ternary "rediss+cluster" "redis+cluster" $redis.cluster.tls) (join "," $redis.cluster.nodes) -}}
{{- end -}}
{{- $query := list -}}
{{- with $redis.tls.existingSecret -}}
{{- range $option, $key := dict "ssl_ca_certs" $redis.tls.caKey "ssl_certfile" $redis.tls.certKey "ssl_keyfile" $redis.tls.keyKey -}}
{{- with $key -}}
{{- $query = append $query (printf "%s=/etc/redisworld/tls/%s" $option .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $redis.tls.verify -}}
{{- $query = append $query "ssl_cert_reqs=none" -}}
{{- end -}}
{{- if $query -}}
{{ $url }}{{ ternary "&" "?" (contains "?" $url) }}{{ join "&" $query }}
{{- else -}}
{{ $url }}
{{- end -}}
{{- end }}

{{/* Environment variables of every container that speaks to Redis. */}}
{{- define "redisworld.redisEnv" -}}
{{- $redis := .Values.redis -}}
- name: REDISWORLD_URL
  {{- if $redis.existingSecretUrlKey }}
  valueFrom:
    secretKeyRef: {name: {{ include "redisworld.secretName" . | quote }}, key: {{ $redis.existingSecretUrlKey | quote }}}
  {{- else }}
  value: {{ include "redisworld.url" . | quote }}
  {{- end }}
{{- if $redis.existingSecretUsernameKey }}
- name: REDISWORLD_USERNAME
  valueFrom:
    secretKeyRef: {name: {{ include "redisworld.secretName" . | quote }}, key: {{ $redis.existingSecretUsernameKey | quote }}}
{{- else if $redis.username }}
- name: REDISWORLD_USERNAME
  value: {{ $redis.username | quote }}
{{- end }}
{{- if include "redisworld.hasPassword" . }}
- name: REDISWORLD_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "redisworld.secretName" . | quote }}, key: {{ $redis.existingSecretPasswordKey | quote }}}
{{- end }}
{{- with include "redisworld.sentinelPasswordKey" . }}
- name: REDISWORLD_SENTINEL_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "redisworld.secretName" $ | quote }}, key: {{ . | quote }}}
{{- end }}
- name: REDISWORLD_NAMESPACE
  value: {{ .Values.runs.namespace | quote }}
- name: REDISWORLD_PARTITIONS
  value: {{ .Values.runs.partitions | quote }}
{{- end }}

{{/* Ports of Redis that a NetworkPolicy lets out to, as a list. */}}
{{- define "redisworld.redisPorts" -}}
{{- $redis := .Values.redis -}}
{{- $ports := .Values.networkPolicy.redisPorts | default list -}}
{{- if not $ports -}}
{{- range concat ($redis.sentinel.nodes | default list) ($redis.cluster.nodes | default list) -}}
{{- $ports = append $ports (regexFind "[0-9]+$" .) -}}
{{- end -}}
{{- if not $redis.cluster.nodes -}}
{{- $ports = append $ports (default "6379" (regexFind ":[0-9]+$" (urlParse $redis.url).host | trimPrefix ":")) -}}
{{- end -}}
{{- end -}}
{{- range $ports | uniq }}
- {protocol: TCP, port: {{ . }}}
{{- end -}}
{{- end }}

{{/* Which of KEDA's scalers speaks to this Redis. */}}
{{- define "redisworld.kedaType" -}}
{{- if .Values.redis.sentinel.nodes -}}redis-sentinel-streams
{{- else if .Values.redis.cluster.nodes -}}redis-cluster-streams
{{- else -}}redis-streams
{{- end -}}
{{- end }}

{{/* Where KEDA finds Redis, as metadata of a trigger. Takes (dict "root" $ "keda" …). */}}
{{- define "redisworld.kedaRedis" -}}
{{- $redis := .root.Values.redis -}}
{{- $tls := false -}}
{{- if $redis.sentinel.nodes -}}
addresses: {{ join "," $redis.sentinel.nodes | quote }}
sentinelMaster: {{ $redis.sentinel.master | quote }}
databaseIndex: {{ int $redis.sentinel.database | quote }}
{{- $tls = $redis.sentinel.tls -}}
{{- else if $redis.cluster.nodes -}}
addresses: {{ join "," $redis.cluster.nodes | quote }}
{{- $tls = $redis.cluster.tls -}}
{{- else -}}
{{- $parts := urlParse (include "redisworld.url" .root) -}}
{{- $host := ternary $parts.host (printf "%s:6379" $parts.host) (regexMatch ":[0-9]+$" $parts.host) -}}
{{- if $redis.trial.enabled -}}
{{- $host = printf "%s.%s.svc:6379" (include "redisworld.trialName" .root) (include "redisworld.namespace" .root) -}}
{{- end -}}
address: {{ default $host .keda.address | quote }}
{{- $database := regexFind "(^|&)db=[0-9]+" $parts.query | regexFind "[0-9]+$" }}
databaseIndex: {{ coalesce $database ($parts.path | trimPrefix "/") "0" | quote }}
{{- $tls = eq $parts.scheme "rediss" -}}
{{- end }}
enableTLS: {{ $tls | quote }}
{{- if not $redis.tls.verify }}
unsafeSsl: "true"
{{- end }}
{{- if and $redis.username (not $redis.existingSecretUsernameKey) }}
usernameFromEnv: REDISWORLD_USERNAME
{{- end }}
{{- end }}

{{/* What KEDA takes from Secrets: parameter and key, a list of secretTargetRef. Empty when there is nothing. */}}
{{- define "redisworld.kedaSecrets" -}}
{{- $redis := .Values.redis -}}
{{- $secret := include "redisworld.secretName" . -}}
{{- if include "redisworld.hasPassword" . }}
- {parameter: password, name: {{ $secret | quote }}, key: {{ $redis.existingSecretPasswordKey | quote }}}
{{- end }}
{{- with $redis.existingSecretUsernameKey }}
- {parameter: username, name: {{ $secret | quote }}, key: {{ . | quote }}}
{{- end }}
{{- with include "redisworld.sentinelPasswordKey" . }}
- {parameter: sentinelPassword, name: {{ $secret | quote }}, key: {{ . | quote }}}
{{- end }}
{{- with $redis.tls.existingSecret }}
{{- range $parameter, $key := dict "ca" $redis.tls.caKey "cert" $redis.tls.certKey "key" $redis.tls.keyKey }}
{{- with $key }}
- {parameter: {{ $parameter }}, name: {{ $redis.tls.existingSecret | quote }}, key: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
