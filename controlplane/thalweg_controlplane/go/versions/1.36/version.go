package main

import (
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// snapshotOptions give plugins the snapshot under each name that this version has for it.
func snapshotOptions(snapshot *internalcache.Snapshot) []frameworkruntime.Option {
	return []frameworkruntime.Option{frameworkruntime.WithSnapshotSharedLister(snapshot)}
}

// PodGroups is part of fwk.SharedDRAManager in this version alone.
func (o *deviceObjects) PodGroups() fwk.PodGroupLister { return nil }
