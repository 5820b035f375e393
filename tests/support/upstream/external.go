// Part of test/integration/util of Kubernetes where its integration tests ask a cluster that runs: building.py says how.
package util

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// external connects a test to the cluster of KUBECONFIG, emptied, in place of an API server of its own.
func external(t *testing.T, testCtx *TestContext, cancel func(string), nsPrefix string) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 1000
	testCtx.KubeConfig = config
	testCtx.ClientSet = clientset.NewForConfigOrDie(config)
	testCtx.CloseFn = func() { cancel("end of the test") }
	empty(t, testCtx)
	name := "default"
	namespaces := testCtx.ClientSet.CoreV1().Namespaces()
	if nsPrefix != name {
		name = strings.ToLower(strings.Trim(nsPrefix+string(uuid.NewUUID()), "-"))
		if _, err := namespaces.Create(testCtx.Ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if testCtx.NS, err = namespaces.Get(testCtx.Ctx, name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { testCtx.CloseFn() })
}

// unschedulable says whether this reason of PodScheduled means that no node takes the pod: one of NO_NODE_TAKES_IT. A
// scheduler may have more words for that than kube-scheduler's one.
func unschedulable(reason string) bool {
	return slices.Contains(strings.Split(os.Getenv("NO_NODE_TAKES_IT"), ","), reason)
}

// made is what tests make, and another test must not meet. The tests' namespaces go last.
var made = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "nodes"},
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Version: "v1", Resource: "persistentvolumes"},
	{Version: "v1", Resource: "services"},
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"},
	{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"},
	{Group: "storage.k8s.io", Version: "v1", Resource: "csinodes"},
	{Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers"},
	{Version: "v1", Resource: "namespaces"},
}

func kept(resource, namespace, name string) bool {
	switch resource {
	case "namespaces":
		return name == "default" || strings.HasPrefix(name, "kube-") || name == "thalweg-system"
	case "priorityclasses":
		return strings.HasPrefix(name, "system-")
	case "services":
		return namespace == "default" && name == "kubernetes"
	}
	return false
}

// empty deletes all that tests made, and returns once it is gone.
func empty(t *testing.T, testCtx *TestContext) {
	ctx := context.Background()
	client := dynamic.NewForConfigOrDie(testCtx.KubeConfig)
	start := time.Now()
	for left := -1; left != 0; time.Sleep(100 * time.Millisecond) {
		left = 0
		for _, resource := range made {
			list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatalf("emptying: %v", err)
			}
			for _, o := range list.Items {
				if kept(resource.Resource, o.GetNamespace(), o.GetName()) {
					continue
				}
				left++
				objects := client.Resource(resource).Namespace(o.GetNamespace())
				if len(o.GetFinalizers()) > 0 {
					o.SetFinalizers(nil)
					_, _ = objects.Update(ctx, &o, metav1.UpdateOptions{})
				}
				if err := objects.Delete(ctx, o.GetName(), *metav1.NewDeleteOptions(0)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					t.Logf("emptying: %v", err)
				}
				if resource.Resource == "namespaces" { // no controller runs that ends them
					namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
					_, _ = testCtx.ClientSet.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
				}
			}
		}
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("the cluster does not get empty: %d objects left", left)
		}
	}
	time.Sleep(500 * time.Millisecond) // whoever schedules is to have seen it
}
