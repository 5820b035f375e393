package main

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// oracleOwners are the objects whose selectors the default constraints of PodTopologySpread take.
type oracleOwners struct {
	Services               []*v1.Service               `json:"services"`
	ReplicationControllers []*v1.ReplicationController `json:"replicationControllers"`
	ReplicaSets            []*appsv1.ReplicaSet        `json:"replicaSets"`
	StatefulSets           []*appsv1.StatefulSet       `json:"statefulSets"`
}

func (o oracleOwners) feed(factory informers.SharedInformerFactory) error {
	core, apps := factory.Core().V1(), factory.Apps().V1()
	return errors.Join(
		fill(core.Services().Informer(), o.Services),
		fill(core.ReplicationControllers().Informer(), o.ReplicationControllers),
		fill(apps.ReplicaSets().Informer(), o.ReplicaSets),
		fill(apps.StatefulSets().Informer(), o.StatefulSets),
	)
}

// totals answers what the default profile gives each node that a pending pod fits: the points of each Score plugin,
// normalised and weighted. "namespace/pod" -> node -> plugin -> points; no node for a pod that fits nowhere.
func (o *oracle) totals(question oracleCase) oracleAnswer {
	answer := map[string]map[string]map[string]int64{}
	for _, pod := range question.Pending {
		found, err := o.totalsOf(question, pod)
		if err != nil {
			return oracleAnswer{Error: err.Error()}
		}
		answer[pod.Namespace+"/"+pod.Name] = found
	}
	return oracleAnswer{Totals: answer}
}

func (o *oracle) totalsOf(question oracleCase, pod *v1.Pod) (map[string]map[string]int64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	snapshot := internalcache.NewSnapshot(question.Pods, question.Nodes)
	scheduler, err := o.framework(ctx, snapshot, question, "")
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	found := map[string]map[string]int64{}
	feasible, _, err := findNodes(ctx, scheduler, snapshot, state, pod)
	if err != nil || len(feasible) == 0 {
		return found, err
	}
	if status := scheduler.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		return nil, status.AsError()
	}
	scores, status := scheduler.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	for _, node := range scores {
		points := map[string]int64{}
		for _, score := range node.Scores {
			points[score.Name] = score.Score
		}
		found[node.Name] = points
	}
	return found, nil
}
