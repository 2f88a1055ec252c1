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
app.kubernetes.io/name: {{ include "redisworld.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .pool }}
redisworld/pool: {{ . }}
{{- end }}
{{- end }}

{{- define "redisworld.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "redisworld.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: redisworld
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* metadata of an object. Also takes "name", and optionally "namespace", "labels", "annotations". */}}
{{- define "redisworld.metadata" -}}
name: {{ .name }}
namespace: {{ default (include "redisworld.namespace" .root) .namespace }}
labels:
  {{- include "redisworld.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
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
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "map" . }}{{ .name }}{{ else }}{{ . }}{{ end }}
  {{- end }}
{{- end }}
{{- end }}
