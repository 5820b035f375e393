package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// A decision is what kube-scheduler does with a pod: the node that it binds it to or nominates, and the pods that it
// evicts there first. Without a node the pod waits.
type decision struct {
	Node    string   `json:"node"`
	Victims []string `json:"victims,omitempty"` // "namespace/pod", the most important first
	// Violations of PodDisruptionBudgets, as DefaultPreemption counts them.
	Violations int64 `json:"violations"`
	// Error that the scheduling of the pod ended with; it waits then.
	Error string `json:"error,omitempty"`
}

// decide answers what kube-scheduler does with each pending pod, as if no other pod waited.
func (o *oracle) decide(question oracleCase) oracleAnswer {
	decisions := map[string]decision{}
	for _, pod := range question.Pending {
		found, err := o.decideOne(question, pod)
		if err != nil {
			return oracleAnswer{Error: err.Error()}
		}
		decisions[pod.Namespace+"/"+pod.Name] = found
	}
	return oracleAnswer{Decisions: decisions}
}

// decideOne follows the scheduling cycle of schedule_one.go: PreFilter, Filter on every node, then the scores or, where
// no node is left, DefaultPreemption.
func (o *oracle) decideOne(question oracleCase, pod *v1.Pod) (decision, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	snapshot := internalcache.NewSnapshot(question.Pods, question.Nodes)
	scheduler, err := o.framework(ctx, snapshot, question, "")
	if err != nil {
		return decision{}, err
	}
	state := framework.NewCycleState()
	found := decision{}
	feasible, statuses, err := findNodes(ctx, scheduler, snapshot, state, pod)
	if err == nil && len(feasible) == 0 {
		found, err = o.preempt(ctx, scheduler, question, state, pod, statuses)
	} else if err == nil {
		found.Node, err = bestNode(ctx, scheduler, state, pod, feasible)
	}
	if err != nil {
		return decision{Error: err.Error()}, nil
	}
	return found, nil
}

// findNodes runs the filters and keeps the status of each node that fails, as findNodesThatFitPod does.
func findNodes(ctx context.Context, scheduler framework.Framework, snapshot *internalcache.Snapshot,
	state fwk.CycleState, pod *v1.Pod) ([]fwk.NodeInfo, *framework.NodeToStatus, error) {
	statuses := framework.NewDefaultNodeToStatus()
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, nil, err
	}
	allowed, status, plugins := scheduler.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, nil, status.AsError()
		}
		statuses.SetAbsentNodesStatus(status)
		return nil, statuses, nil
	}
	if !allowed.AllNodes() {
		statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(plugins))))
	}
	var feasible []fwk.NodeInfo
	for _, node := range nodes {
		if !allowed.AllNodes() && !allowed.NodeNames.Has(node.Node().Name) {
			continue
		}
		status := scheduler.RunFilterPlugins(ctx, state, pod, node)
		if status.IsSuccess() {
			feasible = append(feasible, node)
		} else {
			statuses.Set(node.Node().Name, status)
		}
	}
	return feasible, statuses, nil
}

// bestNode is the node with the highest score. Of equal nodes kube-scheduler draws one; this takes the first.
func bestNode(ctx context.Context, scheduler framework.Framework, state fwk.CycleState, pod *v1.Pod,
	feasible []fwk.NodeInfo) (string, error) {
	if len(feasible) == 1 {
		return feasible[0].Node().Name, nil
	}
	if status := scheduler.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		return "", status.AsError()
	}
	scores, status := scheduler.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return "", status.AsError()
	}
	best := scores[0]
	for _, score := range scores {
		if score.TotalScore > best.TotalScore {
			best = score
		}
	}
	return best.Name, nil
}

// preempt runs DefaultPreemption over all nodes that it may consider; the default arguments sample them.
func (o *oracle) preempt(ctx context.Context, scheduler framework.Framework, question oracleCase, state fwk.CycleState,
	pod *v1.Pod, statuses *framework.NodeToStatus) (decision, error) {
	made, err := o.registry[names.DefaultPreemption](ctx, o.arguments(names.DefaultPreemption), scheduler)
	if err != nil {
		return decision{}, err
	}
	plugin, ok := made.(*defaultpreemption.DefaultPreemption)
	if !ok {
		return decision{}, fmt.Errorf("%s is a %T", names.DefaultPreemption, made)
	}
	if eligible, _ := plugin.PodEligibleToPreemptOthers(ctx, pod, statuses.Get(pod.Status.NominatedNodeName)); !eligible {
		return decision{}, nil
	}
	nodes, err := statuses.NodesForStatusCode(scheduler.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil || len(nodes) == 0 {
		return decision{}, err
	}
	// With one candidate more than there are nodes the search never ends early.
	candidates, _, err := plugin.Evaluator.DryRunPreemption(ctx, state, pod, nodes, question.Budgets, 0, int32(len(nodes)+1))
	if err != nil && len(candidates) == 0 {
		return decision{}, err
	}
	return fromCandidate(plugin.Evaluator.SelectCandidate(ctx, candidates)), nil
}

func fromCandidate(chosen preemption.Candidate) decision {
	if chosen == nil {
		return decision{}
	}
	found := decision{Node: chosen.Name(), Violations: chosen.Victims().NumPDBViolations}
	for _, victim := range chosen.Victims().Pods {
		found.Victims = append(found.Victims, victim.Namespace+"/"+victim.Name)
	}
	return found
}
