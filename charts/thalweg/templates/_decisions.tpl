{{/* What follows from the values. Each is "true" or "". */}}

{{/* Values that left. The schema takes each for one release, nothing reads it, and NOTES says what holds in its place if it was not its default. */}}
{{- define "thalweg.ignoredValues" -}}
rights.learnt: {since: 0.1.0, default: true, instead: what classes of pods use is kept with rights.usage}
{{- end -}}

{{- define "thalweg.hasExtender" -}}
{{- if has .Values.mode (list "Extender" "SecondScheduler") }}true{{ end -}}
{{- end -}}

{{- define "thalweg.observes" -}}
{{- if eq .Values.mode "Observe" }}true{{ end -}}
{{- end -}}

{{/* A number: of operators. */}}
{{- define "thalweg.replicas" -}}
{{- .Values.replicas | default (ternary 1 2 (eq .Values.mode "Observe")) -}}
{{- end -}}

{{- define "thalweg.makesPriorityClass" -}}
{{- if and .Values.priorityClass.create (not (include "thalweg.observes" .)) }}true{{ end -}}
{{- end -}}

{{- define "thalweg.servesGates" -}}
{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{- define "thalweg.gates" -}}
{{- if kindIs "invalid" .Values.rights.gates -}}
{{- if and (include "thalweg.hasExtender" .) (include "thalweg.servesGates" .) }}true{{ end -}}
{{- else if .Values.rights.gates }}true{{ end -}}
{{- end -}}

{{- define "thalweg.openshift" -}}
{{- if kindIs "invalid" .Values.openshift -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end -}}
{{- else if .Values.openshift }}true{{ end -}}
{{- end -}}

{{/* The cluster's version without what providers append to it; "" where it has no patch version. */}}
{{- define "thalweg.clusterVersion" -}}
{{- regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version -}}
{{- end -}}

{{- define "thalweg.ignorable" -}}
{{- if kindIs "invalid" .Values.extender.ignorable -}}
{{- if eq .Values.mode "Extender" }}true{{ end -}}
{{- else if .Values.extender.ignorable }}true{{ end -}}
{{- end -}}

{{- define "thalweg.generatesCertificates" -}}
{{- if and (include "thalweg.hasExtender" .) (eq .Values.certificates.source "Generated") }}true{{ end -}}
{{- end -}}

{{/* The number that a quantity such as 4Gi or 500m stands for; 0: there is none. */}}
{{- define "thalweg.quantity" -}}
{{- $text := . | default 0 | toString -}}
{{- $suffix := regexFind "[a-zA-Z]+$" $text -}}
{{- $factors := dict "" 1 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf ($text | trimSuffix $suffix | float64) (get $factors $suffix) -}}
{{- end -}}

{{/* The seconds of a duration such as 1h30m. */}}
{{- define "thalweg.seconds" -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $unit := regexFind "[hms]" . -}}
{{- $sum = add $sum (mul (trimSuffix $unit . | int64) (get (dict "h" 3600 "m" 60 "s" 1) $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
