{{/* What follows from the values. Each is "true" or "". */}}

{{- define "thalweg.hasExtender" -}}
{{- if ne .Values.mode "Binder" }}true{{ end -}}
{{- end -}}

{{- define "thalweg.servesGates" -}}
{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{/* Without the extender's rights nobody would open the gates of new pods. */}}
{{- define "thalweg.gates" -}}
{{- if kindIs "invalid" .Values.rights.gates -}}
{{- if and (include "thalweg.extenderRights" .) (include "thalweg.servesGates" .) }}true{{ end -}}
{{- else if .Values.rights.gates }}true{{ end -}}
{{- end -}}

{{- define "thalweg.extenderRights" -}}
{{- if kindIs "invalid" .Values.rights.extender -}}
{{- include "thalweg.hasExtender" . -}}
{{- else if .Values.rights.extender }}true{{ end -}}
{{- end -}}

{{- define "thalweg.ignorable" -}}
{{- if kindIs "invalid" .Values.extender.ignorable -}}
{{- if eq .Values.mode "Extender" }}true{{ end -}}
{{- else if .Values.extender.ignorable }}true{{ end -}}
{{- end -}}

{{- define "thalweg.generatesCertificates" -}}
{{- if and (include "thalweg.hasExtender" .) (eq .Values.certificates.source "Generated") }}true{{ end -}}
{{- end -}}
