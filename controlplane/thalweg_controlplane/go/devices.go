package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// A devicesCase is one question to kube-scheduler's structured allocator: which devices of a node can claims have?
// With Expressions it is one to the evaluation of selectors instead: does each hold for each device of the slices?
type devicesCase struct {
	Node    *v1.Node                    `json:"node"`
	Slices  []*resourcev1.ResourceSlice `json:"slices"`
	Classes []*resourcev1.DeviceClass   `json:"classes"`
	// Claims are to be allocated; Others are claims that have devices.
	Claims      []*resourcev1.ResourceClaim `json:"claims"`
	Others      []*resourcev1.ResourceClaim `json:"others"`
	Expressions []string                    `json:"expressions"`
	// GatesOff names the feature gates that are off.
	GatesOff []string `json:"gatesOff"`
}

// A devicesAnswer has one allocation for each claim, none if they cannot be had, or the error that ended the attempt.
type devicesAnswer struct {
	Allocations []resourcev1.AllocationResult `json:"allocations"`
	Error       string                        `json:"error,omitempty"`
	// OnNodeOnly says that the error is a reason against this node alone.
	OnNodeOnly bool `json:"onNodeOnly,omitempty"`
	// TimedOut says that the search was not finished.
	TimedOut bool `json:"timedOut,omitempty"`
	// Selections: for each expression what it says of each device.
	Selections [][]selection `json:"selections,omitempty"`
}

type selection struct {
	Matches bool `json:"matches"`
	// Stage of the error: compile or runtime; empty if there is none.
	Stage string `json:"stage,omitempty"`
	Error string `json:"error,omitempty"`
}

// allocationTime bounds one search: kube-scheduler gives it ten seconds.
const allocationTime = 2 * time.Second

// deviceFeatures are those of this version with its default gates, but for some that are off.
func deviceFeatures(off sets.Set[string]) structured.Features {
	features := dynamicresources.AllocatorFeatures(feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	for _, gated := range []struct {
		isOn  *bool
		gates []string
	}{
		{&features.AdminAccess, []string{"DRAAdminAccess"}},
		{&features.ConsumableCapacity, []string{"DRAConsumableCapacity"}},
		{&features.DeviceBindingAndStatus, []string{"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"}},
		{&features.DeviceTaints, []string{"DRADeviceTaints"}},
		{&features.PartitionableDevices, []string{"DRAPartitionableDevices"}},
		{&features.PrioritizedList, []string{"DRAPrioritizedList"}},
	} {
		*gated.isOn = *gated.isOn && !off.HasAny(gated.gates...)
	}
	return features
}

// deviceClasses lists the classes of a case.
type deviceClasses []*resourcev1.DeviceClass

func (c deviceClasses) List() ([]*resourcev1.DeviceClass, error) { return c, nil }

func (c deviceClasses) Get(name string) (*resourcev1.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("deviceclass.resource.k8s.io %q not found", name)
}

func answerDevices(question devicesCase) devicesAnswer {
	ctx, cancel := context.WithTimeout(context.Background(), allocationTime)
	defer cancel()
	features := deviceFeatures(sets.New(question.GatesOff...))
	cache := cel.NewCache(1000, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity})
	if len(question.Expressions) > 0 {
		return devicesAnswer{Selections: selections(ctx, cache, question)}
	}
	allocator, err := structured.NewAllocator(
		ctx, features, allocatedState(question.Others, features.ConsumableCapacity), deviceClasses(question.Classes), question.Slices, cache)
	if err != nil {
		return devicesAnswer{Error: err.Error()}
	}
	allocations, err := allocator.Allocate(ctx, question.Node, question.Claims)
	answer := devicesAnswer{Allocations: allocations}
	if err != nil {
		answer.Error = err.Error()
		answer.OnNodeOnly = errors.Is(err, structured.ErrFailedAllocationOnNode)
		// A CEL expression that was interrupted reports an error of its own, so the context is asked.
		answer.TimedOut = ctx.Err() != nil
	}
	return answer
}

// allocatedState is what kube-scheduler's plugin keeps of claims that have devices (foreachAllocatedDevice).
func allocatedState(claims []*resourcev1.ResourceClaim, withShares bool) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil || !withShares {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}

func selections(ctx context.Context, cache *cel.Cache, question devicesCase) [][]selection {
	var all [][]selection
	for _, expression := range question.Expressions {
		compiled := cache.GetOrCompile(expression)
		row := []selection{}
		for _, slice := range question.Slices {
			for _, device := range slice.Spec.Devices {
				row = append(row, selectDevice(ctx, compiled, slice.Spec.Driver, device))
			}
		}
		all = append(all, row)
	}
	return all
}

func selectDevice(ctx context.Context, compiled cel.CompilationResult, driver string, device resourcev1.Device) selection {
	if compiled.Error != nil {
		return selection{Stage: "compile", Error: compiled.Error.Error()}
	}
	matches, _, err := compiled.DeviceMatches(ctx, cel.Device{
		Driver:                   driver,
		AllowMultipleAllocations: device.AllowMultipleAllocations,
		Attributes:               device.Attributes,
		Capacity:                 device.Capacity,
	})
	if err != nil {
		return selection{Stage: "runtime", Error: err.Error()}
	}
	return selection{Matches: matches}
}
