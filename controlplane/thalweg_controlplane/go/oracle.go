package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// An oracleCase is one question: may each pending pod go to each node, as things stand?
// No pending pod is placed before another one is judged.
type oracleCase struct {
	Nodes      []*v1.Node      `json:"nodes"`
	Pods       []*v1.Pod       `json:"pods"` // already on their nodes
	Pending    []*v1.Pod       `json:"pending"`
	Namespaces []*v1.Namespace `json:"namespaces"`
	Storage    oracleStorage   `json:"storage"`
	Owners     oracleOwners    `json:"owners"`
	// Filters names plugins to judge one by one, each for itself. Empty: the default profile
	// as a whole, which stops at the first plugin that rejects.
	Filters []string `json:"filters"`
	// Scores names plugins whose raw scores are asked for, in place of verdicts: see scores.go.
	Scores []string `json:"scores"`
	// Totals asks what the default profile gives each node, in place of verdicts: see totals.go.
	Totals bool `json:"totals"`
	// Defaults asks what kube-scheduler does unless it is configured, in place of all else: see defaults.go.
	Defaults bool `json:"defaults"`
	// Decide asks for decisions, preemption among them, in place of verdicts: see preemption.go.
	Decide  bool                            `json:"decide"`
	Budgets []*policyv1.PodDisruptionBudget `json:"budgets"`
	// Devices asks the allocator of devices, in place of verdicts: see devices.go.
	Devices *devicesCase `json:"devices"`
	// DeviceObjects brings DynamicResources into the profile: see claims.go.
	DeviceObjects *deviceObjects `json:"deviceObjects"`
}

// An oracleStorage is what the volume plugins read beside pods and nodes.
type oracleStorage struct {
	PersistentVolumes      []*v1.PersistentVolume          `json:"persistentVolumes"`
	PersistentVolumeClaims []*v1.PersistentVolumeClaim     `json:"persistentVolumeClaims"`
	StorageClasses         []*storagev1.StorageClass       `json:"storageClasses"`
	CSINodes               []*storagev1.CSINode            `json:"csiNodes"`
	VolumeAttachments      []*storagev1.VolumeAttachment   `json:"volumeAttachments"`
	CSIDrivers             []*storagev1.CSIDriver          `json:"csiDrivers"`
	CSIStorageCapacities   []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities"`
}

// feed puts the objects where the listers of the plugins look: no informer runs, its store is filled by hand.
func (s oracleStorage) feed(factory informers.SharedInformerFactory) error {
	core, storage := factory.Core().V1(), factory.Storage().V1()
	return errors.Join(
		fill(core.PersistentVolumes().Informer(), s.PersistentVolumes),
		fill(core.PersistentVolumeClaims().Informer(), s.PersistentVolumeClaims),
		fill(storage.StorageClasses().Informer(), s.StorageClasses),
		fill(storage.CSINodes().Informer(), s.CSINodes),
		fill(storage.VolumeAttachments().Informer(), s.VolumeAttachments),
		fill(storage.CSIDrivers().Informer(), s.CSIDrivers),
		fill(storage.CSIStorageCapacities().Informer(), s.CSIStorageCapacities),
	)
}

func fill[T any](informer cache.SharedIndexInformer, objects []T) error {
	for _, object := range objects {
		if err := informer.GetIndexer().Add(object); err != nil {
			return err
		}
	}
	return nil
}

type verdict struct {
	Fits   bool   `json:"fits"`
	Filter string `json:"filter,omitempty"`
	Reason string `json:"reason,omitempty"`
	Code   string `json:"code,omitempty"` // Unschedulable, UnschedulableAndUnresolvable or Error
}

type oracleAnswer struct {
	// Verdicts: filter (or "" for the whole profile) -> "namespace/pod" -> node -> verdict.
	Verdicts map[string]map[string]map[string]verdict `json:"verdicts"`
	Scores   map[string]map[string]map[string]int64   `json:"scores,omitempty"`
	// Totals: "namespace/pod" -> node -> plugin -> weighted points.
	Totals map[string]map[string]map[string]int64 `json:"totals,omitempty"`
	// Decisions: "namespace/pod" -> decision.
	Decisions map[string]decision `json:"decisions,omitempty"`
	Devices   *devicesAnswer      `json:"devices,omitempty"`
	Defaults  *defaultsAnswer     `json:"defaults,omitempty"`
	Error     string              `json:"error,omitempty"`
}

// noNominations is the nominator of a cluster in which nothing is nominated.
type noNominations struct{}

func (noNominations) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (noNominations) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (noNominations) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
func (noNominations) NominatedPodsForNode(string) []fwk.PodInfo                     { return nil }

// runOracle reads one JSON case a line and answers with one JSON line, in order.
func runOracle() int {
	metrics.Register()
	config, err := latest.Default()
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		return 1
	}
	oracle := &oracle{config: config, profile: config.Profiles[0], registry: plugins.NewInTreeRegistry()}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return 0
		} else if err != nil && err != io.EOF {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			return 1
		}
		if err := out.Encode(oracle.answer(line)); err != nil {
			return 1
		}
	}
}

type oracle struct {
	config   *schedulerconfig.KubeSchedulerConfiguration
	profile  schedulerconfig.KubeSchedulerProfile
	registry frameworkruntime.Registry
}

func (o *oracle) answer(line []byte) (answer oracleAnswer) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = oracleAnswer{Error: fmt.Sprint("panic: ", problem)}
		}
	}()
	var question oracleCase
	if err := json.Unmarshal(line, &question); err != nil {
		return oracleAnswer{Error: err.Error()}
	}
	answer.Verdicts = map[string]map[string]map[string]verdict{}
	if question.Devices != nil {
		devices := answerDevices(*question.Devices)
		return oracleAnswer{Devices: &devices}
	}
	if len(question.Scores) > 0 {
		return o.scores(question)
	}
	if question.Decide {
		return o.decide(question)
	}
	if question.Totals {
		return o.totals(question)
	}
	if question.Defaults {
		defaults, err := o.defaults()
		if err != nil {
			return oracleAnswer{Error: err.Error()}
		}
		return oracleAnswer{Defaults: &defaults}
	}
	chosen := question.Filters
	if len(chosen) == 0 {
		chosen = []string{""}
	}
	for _, filter := range chosen {
		verdicts, err := o.judge(question, filter)
		if err != nil {
			return oracleAnswer{Error: err.Error()}
		}
		answer.Verdicts[filter] = verdicts
	}
	return answer
}

func (o *oracle) judge(question oracleCase, filter string) (map[string]map[string]verdict, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	snapshot := internalcache.NewSnapshot(question.Pods, question.Nodes)
	scheduler, err := o.framework(ctx, snapshot, question, filter)
	if err != nil {
		return nil, err
	}
	verdicts := map[string]map[string]verdict{}
	for _, pod := range question.Pending {
		state := framework.NewCycleState()
		allowed, status, _ := scheduler.RunPreFilterPlugins(ctx, state, pod)
		perNode := map[string]verdict{}
		for _, node := range question.Nodes {
			perNode[node.Name] = judgeNode(ctx, scheduler, snapshot, state, pod, node.Name, allowed, status)
		}
		verdicts[pod.Namespace+"/"+pod.Name] = perNode
	}
	return verdicts, nil
}

func judgeNode(ctx context.Context, scheduler framework.Framework, snapshot *internalcache.Snapshot, state fwk.CycleState,
	pod *v1.Pod, node string, allowed *fwk.PreFilterResult, preFilter *fwk.Status) verdict {
	if !preFilter.IsSuccess() {
		return fromStatus(preFilter)
	}
	if !allowed.AllNodes() && !allowed.NodeNames.Has(node) {
		// schedule_one.go words it by the plugins that narrowed the list; of the default ones only NodeAffinity does.
		return verdict{Filter: names.NodeAffinity, Code: fwk.UnschedulableAndUnresolvable.String(),
			Reason: "node(s) didn't satisfy plugin(s) [NodeAffinity]"}
	}
	info, err := snapshot.Get(node)
	if err != nil {
		return verdict{Code: "Error", Reason: err.Error()}
	}
	return fromStatus(scheduler.RunFilterPlugins(ctx, state, pod, info))
}

func fromStatus(status *fwk.Status) verdict {
	if status.IsSuccess() {
		return verdict{Fits: true}
	}
	reasons := append([]string{}, status.Reasons()...)
	sort.Strings(reasons)
	return verdict{Filter: status.Plugin(), Reason: strings.Join(reasons, ", "), Code: status.Code().String()}
}

// framework builds the default profile, or that profile cut down to one filter. Without objects about devices
// DynamicResources stays out.
func (o *oracle) framework(ctx context.Context, snapshot *internalcache.Snapshot, question oracleCase, filter string) (framework.Framework, error) {
	profile := *o.profile.DeepCopy()
	if filter != "" {
		if _, known := o.registry[filter]; !known {
			return nil, fmt.Errorf("kube-scheduler has no plugin %q", filter)
		}
		one := schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: filter}}}
		profile.Plugins = &schedulerconfig.Plugins{
			QueueSort: schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: names.PrioritySort}}},
			Bind:      schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: names.DefaultBinder}}},
			Filter:    one,
		}
		if sets.New(names.NodeAffinity, names.NodePorts, names.NodeResourcesFit, names.InterPodAffinity,
			names.PodTopologySpread, names.NodeVolumeLimits, names.VolumeBinding, names.VolumeRestrictions,
			names.VolumeZone, names.NodeDeclaredFeatures).Has(filter) {
			profile.Plugins.PreFilter = one
		}
	} else {
		kept := profile.Plugins.MultiPoint.Enabled[:0]
		for _, plugin := range profile.Plugins.MultiPoint.Enabled {
			isLeftOut := plugin.Name == names.DynamicResources && question.DeviceObjects == nil
			if !isLeftOut && plugin.Name != names.DefaultPreemption {
				kept = append(kept, plugin)
			}
		}
		profile.Plugins.MultiPoint.Enabled = kept
	}
	clients := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(clients, 0)
	var devices fwk.SharedDRAManager
	if question.DeviceObjects != nil {
		devices = question.DeviceObjects.manager(ctx)
	}
	built, err := frameworkruntime.NewFramework(ctx, o.registry, &profile, append(snapshotOptions(snapshot),
		frameworkruntime.WithClientSet(clients),
		frameworkruntime.WithSharedDRAManager(devices),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithPodNominator(noNominations{}),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
	)...)
	if err != nil {
		return nil, err
	}
	// Plugins add indexes of their own as they are made: objects come after that.
	if err := fill(factory.Core().V1().Namespaces().Informer(), question.Namespaces); err != nil {
		return nil, err
	}
	return built, errors.Join(question.Storage.feed(factory), question.Owners.feed(factory))
}
