package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// scores answers what Score plugins say of each pending pod on each node, before they are normalised and weighted.
// All nodes count as having passed the filters. Plugin -> "namespace/pod" -> node -> score; a pod that the plugin
// refuses to score is left out, one that it has no opinion of scores 0.
func (o *oracle) scores(question oracleCase) oracleAnswer {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	snapshot := internalcache.NewSnapshot(question.Pods, question.Nodes)
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return oracleAnswer{Error: err.Error()}
	}
	// Any plugin makes a framework, and plugins need one for what it knows of the cluster.
	handle, err := o.framework(ctx, snapshot, question, names.NodeName)
	if err != nil {
		return oracleAnswer{Error: err.Error()}
	}
	answer := map[string]map[string]map[string]int64{}
	for _, name := range question.Scores {
		make, known := o.registry[name]
		if !known {
			return oracleAnswer{Error: fmt.Sprintf("kube-scheduler has no plugin %q", name)}
		}
		plugin, err := make(ctx, o.arguments(name), handle)
		if err != nil {
			return oracleAnswer{Error: err.Error()}
		}
		score, ok := plugin.(fwk.ScorePlugin)
		if !ok {
			return oracleAnswer{Error: name + " does not score"}
		}
		perPod := map[string]map[string]int64{}
		for _, pod := range question.Pending {
			if found, ok := scorePod(ctx, score, pod, nodes); ok {
				perPod[pod.Namespace+"/"+pod.Name] = found
			}
		}
		answer[name] = perPod
	}
	return oracleAnswer{Scores: answer}
}

func scorePod(ctx context.Context, plugin fwk.ScorePlugin, pod *v1.Pod, nodes []fwk.NodeInfo) (map[string]int64, bool) {
	state := framework.NewCycleState()
	silent := false
	if before, ok := plugin.(fwk.PreScorePlugin); ok {
		status := before.PreScore(ctx, state, pod, nodes)
		if !status.IsSuccess() && !status.IsSkip() {
			return nil, false
		}
		silent = status.IsSkip()
	}
	found := map[string]int64{}
	for _, node := range nodes {
		found[node.Node().Name] = 0
		if silent {
			continue
		}
		score, status := plugin.Score(ctx, state, pod, node)
		if !status.IsSuccess() {
			return nil, false
		}
		found[node.Node().Name] = score
	}
	return found, true
}

// arguments are the default profile's.
func (o *oracle) arguments(name string) runtime.Object {
	for _, config := range o.profile.PluginConfig {
		if config.Name == name {
			return config.Args
		}
	}
	return nil
}
