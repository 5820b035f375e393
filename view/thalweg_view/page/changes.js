// Changes that the form offers: kind, title and fields, as flowcore/questions/scenario/hypothetical/changes.py has them.
export const CHANGES = [
  { kind: "Cordon", title: "Cordon a node", fields: [["node", "node"]] },
  { kind: "Uncordon", title: "Uncordon a node", fields: [["node", "node"]] },
  { kind: "Drain", title: "Drain a node", fields: [["node", "node"]] },
  { kind: "RemoveNode", title: "Remove a node", fields: [["node", "node"]] },
  { kind: "FailDomain", title: "Fail a zone, a rack or another domain", fields: [["label", "label", "zone"], ["value", "value"]] },
  { kind: "AddNodes", title: "Add nodes", fields: [["count", "how many", "1", Number], ["like", "like the node"]] },
  { kind: "RemoveTaint", title: "Remove a taint", fields: [["node", "node"], ["key", "key of the taint"]] },
  { kind: "SetPriority", title: "Set a pod's priority", fields: [["pod", "namespace/pod"], ["priority", "priority", "0", Number]] },
  { kind: "Tolerate", title: "Tolerate a taint", fields: [["pod", "namespace/pod"], ["key", "key of the taint"]] },
  { kind: "DropNodeSelector", title: "Drop a label that a pod asks for", fields: [["pod", "namespace/pod"], ["label", "label"]] },
  { kind: "ReplaceNodeLabel", title: "Ask for another label of the node", fields: [["pod", "namespace/pod"], ["label", "label"], ["value", "value"], ["newLabel", "new label"], ["newValue", "new value"]] },
  { kind: "ReplaceDeviceSelector", title: "Select devices of a claim in another way", fields: [["pod", "namespace/pod"], ["claim", "claim, as the pod names it"], ["request", "request"], ["selector", "expression"], ["newSelector", "new expression"]] },
  { kind: "DropDeviceConstraint", title: "Drop a constraint of a claim", fields: [["pod", "namespace/pod"], ["claim", "claim, as the pod names it"], ["attribute", "attribute"]] },
  { kind: "CountDevices", title: "Claim another number of devices", fields: [["pod", "namespace/pod"], ["claim", "claim, as the pod names it"], ["request", "request"], ["count", "how many", "1", Number]] },
  { kind: "EvictPods", title: "Evict a pod", fields: [["pods", "namespace/pod", "", (text) => text.split(/[\s,]+/).filter(Boolean)]] },
  { kind: "MovePod", title: "Move a pod", fields: [["pod", "namespace/pod"], ["node", "node"]] },
  { kind: "RaiseCap", title: "Raise a cap of a policy", fields: [["policy", "policy"], ["constraint", "constraint"], ["value", "maxPerDomain", "1", Number]] },
  { kind: "PutPolicy", title: "Add or replace a policy (JSON)", fields: [["policy", "policy", "", JSON.parse]] },
  { kind: "PutObjects", title: "Add or replace objects (a JSON list)", fields: [["objects", "objects", "", JSON.parse]] },
];

/** A change in words. */
export function describe(change) {
  const { kind, ...fields } = change;
  const title = CHANGES.find((each) => each.kind === kind)?.title ?? kind;
  const values = Object.entries(fields).filter(([, value]) => value !== "").map(([name, value]) => {
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return `${name} ${text.length > 60 ? `${text.slice(0, 59)}…` : text}`;
  });
  return `${title}: ${values.join(", ")}`;
}
