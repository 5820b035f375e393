// One binary that is the whole control plane: etcd, kube-apiserver, kube-scheduler,
// kube-controller-manager, a key maker, and the oracle (kube-scheduler's own filters as a function).
// The first argument chooses. One binary because they share almost all of their code:
// linking it once keeps the first build short and the cache small.
//
// A folder of versions/ has what one minor version of Kubernetes needs of its own: go.mod, go.sum and version.go.
// A build copies these beside the files here.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // for CronJob time zones, as upstream's own main packages do

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	components := map[string]func() int{
		"etcd":                    runEtcd,
		"keygen":                  runKeygen,
		"oracle":                  runOracle,
		"kube-apiserver":          component(apiserver.NewAPIServerCommand),
		"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	}
	if len(os.Args) > 1 {
		if run, ok := components[os.Args[1]]; ok {
			os.Args = os.Args[1:] // each command reads os.Args itself
			os.Exit(run())
		}
	}
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-scheduler|kube-controller-manager|keygen|oracle [flags]")
	os.Exit(2)
}

func component(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}
