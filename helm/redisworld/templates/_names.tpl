{{/* What are objects called, and which labels do they carry? */}}

{{- define "redisworld.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "redisworld.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{- $name := include "redisworld.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "redisworld.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "redisworld.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "redisworld.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{- default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{/* Never a version among these: a selector cannot be changed. Takes (dict "root" $ "component" … "pool" …). */}}
{{- define "redisworld.selector" -}}
app.kubernetes.io/name: {{ include "redisworld.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .pool }}
redisworld/pool: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The chart's labels, commonLabels, and the object's own "labels"; the later win, for no key may stand there twice. */}}
{{- define "redisworld.labels" -}}
{{- $ours := dict "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/part-of" "redisworld" -}}
{{- $_ := set $ours "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- $_ := set $ours "helm.sh/chart" $chart -}}
{{- $selector := include "redisworld.selector" . | fromYaml -}}
{{- mergeOverwrite $ours $selector (.root.Values.commonLabels | default dict) (.labels | default dict) | toYaml -}}
{{- end }}

{{/* metadata of an object. Also takes "name", and optionally "namespace", "labels", "annotations". */}}
{{- define "redisworld.metadata" -}}
name: {{ .name | quote }}
namespace: {{ default (include "redisworld.namespace" .root) .namespace | quote }}
labels:
  {{- include "redisworld.labels" . | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Takes (dict "root" $ "image" …). */}}
{{- define "redisworld.image" -}}
{{- $registry := default .image.registry .root.Values.global.imageRegistry -}}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne ($registry | default "") "") -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end }}

{{- define "redisworld.pullSecrets" -}}
{{- with concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "map" . }}{{ .name }}{{ else }}{{ . }}{{ end }}
  {{- end }}
{{- end }}
{{- end }}
