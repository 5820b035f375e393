{{/* What all pods of the chart have in common: they meet the Pod Security level `restricted`. */}}
{{- define "thalweg.podSecurityContext" -}}
runAsNonRoot: true
{{- if not (include "thalweg.openshift" .) }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "thalweg.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where pods go, and who may pull: the same for all pods of the chart. */}}
{{- define "thalweg.placement" -}}
schedulerName: {{ .Values.schedulerName | quote }}
nodeSelector: {{ merge .Values.nodeSelector (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The uninstall Job may run before its revision's class is there, at a rollback or a change of mode. So it has none. */}}
{{- define "thalweg.priority" -}}
{{- with include "thalweg.priorityClass" . }}priorityClassName: {{ . }}{{ end }}
{{- end -}}

{{/* Replicas on different nodes and zones: (list $ COMPONENT). */}}
{{- define "thalweg.spread" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- range (list "kubernetes.io/hostname" "topology.kubernetes.io/zone") }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "thalweg.selectorLabels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ index $ 1 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end -}}

{{/* What a container of our image needs that runs one command. */}}
{{- define "thalweg.commandContainer" -}}
{{- include "thalweg.ownImage" . }}
securityContext: {{ include "thalweg.containerSecurityContext" . | nindent 2 }}
resources: {{ toYaml .Values.jobs.resources | nindent 2 }}
{{- end -}}

{{/*
The pod of a job: (dict "root" $ "account" NAME "component" NAME "containers" LIST). Each container is a dict of name and args; they
run one after the other.
*/}}
{{- define "thalweg.jobPod" -}}
metadata:
  labels:
    {{- include "thalweg.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ .account }}
  automountServiceAccountToken: true
  securityContext: {{ include "thalweg.podSecurityContext" .root | nindent 4 }}
  {{- include "thalweg.placement" .root | nindent 2 }}
  {{- if ne .component "uninstall" }}
  {{- include "thalweg.priority" .root | nindent 2 }}
  {{- end }}
  {{- with initial .containers }}
  initContainers:
    {{- range . }}
    {{- include "thalweg.jobContainer" (list $.root .) | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    {{- include "thalweg.jobContainer" (list .root (last .containers)) | nindent 4 }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 256Mi}
{{- end -}}

{{- define "thalweg.jobContainer" -}}
- name: {{ (index . 1).name }}
  {{- include "thalweg.commandContainer" (index . 0) | nindent 2 }}
  args: {{ toYaml (index . 1).args | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "thalweg.strategy" -}}
type: {{ .Values.strategy.type }}
{{- if eq .Values.strategy.type "RollingUpdate" }}
rollingUpdate: {{ toYaml .Values.strategy.rollingUpdate | nindent 2 }}
{{- end }}
{{- end -}}
