package main

import (
	"context"
	"errors"
	"time"

	"outboard.dev/dra/internal/handover"
	"outboard.dev/dra/internal/node"
)

func runNode(ctx context.Context, arguments []string) error {
	flags, where := newFlags("node")
	var options node.Options
	flags.StringVar(&options.Node, "node", variable("NODE_NAME", ""), "the name of this node")
	flags.StringVar(&options.State, "state", "/run/outboard-dra",
		"folder of leases and keys, at the same path on the node")
	flags.StringVar(&options.Install, "install", "/opt/outboard",
		"the node's folder with Outboard's bin and lib, at the same path here")
	flags.StringVar(&options.Libraries, "library-path",
		"/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
		"further folders of libraries for programs in containers")
	flags.StringVar(&options.Specs, "cdi", "/var/run/cdi", "folder that the container engine reads")
	flags.StringVar(&options.Kubelet, "kubelet", "/var/lib/kubelet", "the kubelet's folder")
	flags.DurationVar(&options.Fresh, "fresh", time.Minute, "how often to bring renewed leases")
	token := flags.String("token-file", "/var/run/secrets/outboard.dev/token",
		"this pod's token for the audience "+handover.Audience)
	_ = flags.Parse(arguments)

	if options.Node == "" {
		return errors.New("say which node this is: --node, or NODE_NAME")
	}
	cluster, err := where.client()
	if err != nil {
		return err
	}
	leases := &handover.Client{
		Cluster: cluster, Namespace: *where.namespace, TokenFile: *token,
	}
	return node.Run(ctx, options, cluster, leases)
}
