package main

import (
	"flag"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// clusterFlags are what both commands are told of the cluster.
type clusterFlags struct {
	kubeconfig *string
	namespace  *string
}

func newFlags(command string) (*flag.FlagSet, *clusterFlags) {
	flags := flag.NewFlagSet("outboard-dra "+command, flag.ExitOnError)
	klog.InitFlags(flags)
	return flags, &clusterFlags{
		flags.String("kubeconfig", "", "reach the cluster so; without it, as a pod of it"),
		flags.String("namespace", variable("NAMESPACE", "outboard"), "the controller's namespace"),
	}
}

func (c *clusterFlags) client() (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if *c.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", *c.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("the cluster cannot be reached: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	return kubernetes.NewForConfig(config)
}

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
