package main

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// A deviceObjects is what NodeResourcesFit and DynamicResources read beside pods and nodes. It never changes: no
// pending pod is placed before another one is judged.
type deviceObjects struct {
	Slices  []*resourcev1.ResourceSlice `json:"slices"`
	Classes []*resourcev1.DeviceClass   `json:"classes"`
	Claims  []*resourcev1.ResourceClaim `json:"claims"`

	extended *extendedresourcecache.ExtendedResourceCache
}

// manager is kube-scheduler's view of the objects, with its own table of the classes that back extended resources.
func (o *deviceObjects) manager(ctx context.Context) fwk.SharedDRAManager {
	o.extended = extendedresourcecache.NewExtendedResourceCache(klog.FromContext(ctx))
	for _, class := range o.Classes {
		o.extended.OnAdd(class, true)
	}
	return o
}

func (o *deviceObjects) ResourceClaims() fwk.ResourceClaimTracker     { return deviceClaims(o.Claims) }
func (o *deviceObjects) ResourceSlices() fwk.ResourceSliceLister      { return o }
func (o *deviceObjects) DeviceClasses() fwk.DeviceClassLister         { return deviceClasses(o.Classes) }
func (o *deviceObjects) DeviceClassResolver() fwk.DeviceClassResolver { return o.extended }
func (o *deviceObjects) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	return o.Slices, nil
}

// deviceClaims lists the claims of a case; none is on its way.
type deviceClaims []*resourcev1.ResourceClaim

func (c deviceClaims) List() ([]*resourcev1.ResourceClaim, error) { return c, nil }

func (c deviceClaims) Get(namespace, name string) (*resourcev1.ResourceClaim, error) {
	for _, claim := range c {
		if claim.Namespace == namespace && claim.Name == name {
			return claim, nil
		}
	}
	return nil, fmt.Errorf("could not find ResourceClaim %q", namespace+"/"+name)
}

func (c deviceClaims) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	return allocatedState(c, true).AllocatedDevices, nil
}

func (c deviceClaims) GatherAllocatedState() (*structured.AllocatedState, error) {
	state := allocatedState(c, true)
	return &state, nil
}

func (c deviceClaims) SignalClaimPendingAllocation(types.UID, *resourcev1.ResourceClaim) error {
	return nil
}
func (c deviceClaims) GetPendingAllocation(types.UID) *resourcev1.AllocationResult { return nil }
func (c deviceClaims) MaybeRemoveClaimPendingAllocation(types.UID, bool) bool      { return false }
func (c deviceClaims) AssumeClaimAfterAPICall(*resourcev1.ResourceClaim) error     { return nil }
func (c deviceClaims) AssumedClaimRestore(string, string)                          {}

// What 1.35 has in place of GetPendingAllocation and MaybeRemoveClaimPendingAllocation.
func (c deviceClaims) ClaimHasPendingAllocation(types.UID) bool    { return false }
func (c deviceClaims) RemoveClaimPendingAllocation(types.UID) bool { return false }
