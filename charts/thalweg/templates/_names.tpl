{{/* Every name has room for a suffix: 63 characters is the limit of a Service, 52 of a CronJob. */}}
{{- define "thalweg.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $name | trunc 36 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "thalweg.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "thalweg.fullname" .) -}}
{{- end -}}

{{/* Of the release's own pods; "": they have none. */}}
{{- define "thalweg.priorityClass" -}}
{{- if include "thalweg.makesPriorityClass" . -}}
{{- .Values.priorityClass.name | default (include "thalweg.fullname" .) -}}
{{- else if not .Values.priorityClass.create -}}
{{- .Values.priorityClass.name -}}
{{- end -}}
{{- end -}}

{{- define "thalweg.extenderService" -}}
{{- include "thalweg.fullname" . }}-extender
{{- end -}}

{{/* The name that the extender's certificate has, and that kube-scheduler verifies. */}}
{{- define "thalweg.extenderHost" -}}
{{- include "thalweg.extenderService" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "thalweg.serverSecret" -}}
{{- if eq .Values.certificates.source "Secret" -}}{{ .Values.certificates.secret.server }}
{{- else -}}{{ include "thalweg.fullname" . }}-extender-tls{{- end -}}
{{- end -}}

{{- define "thalweg.clientSecret" -}}
{{- if eq .Values.certificates.source "Secret" -}}{{ .Values.certificates.secret.client }}
{{- else -}}{{ include "thalweg.fullname" . }}-extender-client-tls{{- end -}}
{{- end -}}

{{- define "thalweg.selectorLabels" -}}
app.kubernetes.io/name: thalweg
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of an object that belongs to no component. */}}
{{- define "thalweg.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "thalweg.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: thalweg
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object: (list $ SUFFIX COMPONENT). */}}
{{- define "thalweg.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "thalweg.fullname" $root }}{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "thalweg.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 2 }}
{{- end -}}

{{/* The same for objects without a namespace. */}}
{{- define "thalweg.clusterMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "thalweg.fullname" $root }}{{ index . 1 }}
labels:
  {{- include "thalweg.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 2 }}
{{- end -}}

{{/* Annotations of an object that is there while a hook runs: (list EVENTS WEIGHT). Those with a lower weight come first. */}}
{{- define "thalweg.hook" -}}
annotations:
  helm.sh/hook: {{ index . 0 }}
  helm.sh/hook-weight: {{ index . 1 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* An image of values `image`: (list IMAGE TAG). */}}
{{- define "thalweg.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}{{ $image.repository }}@{{ $image.digest }}
{{- else -}}{{ $image.repository }}:{{ $image.tag | default (index . 1) }}{{- end -}}
{{- end -}}

{{- define "thalweg.ownImage" -}}
image: {{ include "thalweg.image" (list .Values.image .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}
