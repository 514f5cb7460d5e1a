package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"outboard.dev/dra/internal/handover"
	"outboard.dev/dra/internal/names"
	"outboard.dev/dra/internal/node"
)

func runNode(ctx context.Context, arguments []string) error {
	flags, where := newFlags("node")
	name := flags.String("node", variable("NODE_NAME", ""), "the name of this node")
	token := flags.String("token-file", "/var/run/secrets/outboard.dev/token",
		"this pod's token for the audience "+handover.Audience)
	state := flags.String("state", "/run/outboard-dra",
		"folder of leases and keys, at the same path on the node")
	install := flags.String("install", "/opt/outboard",
		"the node's folder with Outboard's bin and lib, at the same path here")
	libraries := flags.String("library-path", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
		"further folders of libraries for programs in containers")
	specs := flags.String("cdi", "/var/run/cdi", "folder that the container engine reads")
	kubelet := flags.String("kubelet", "/var/lib/kubelet", "the kubelet's folder")
	fresh := flags.Duration("fresh", time.Minute, "how often to bring renewed leases")
	_ = flags.Parse(arguments)

	if *name == "" {
		return errors.New("say which node this is: --node, or NODE_NAME")
	}
	cluster, err := where.client()
	if err != nil {
		return err
	}
	written, err := node.NewSpecifications(*specs, *install, *libraries)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	leases := &handover.Client{
		Cluster: cluster, Namespace: *where.namespace, TokenFile: *token,
	}
	folders := node.Folders{Path: filepath.Join(*state, "claims")}
	plugin := node.NewPlugin(leases, folders, written, stop)
	data := filepath.Join(*kubelet, "plugins", names.Driver)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, plugin,
		kubeletplugin.DriverName(names.Driver),
		kubeletplugin.NodeName(*name),
		kubeletplugin.KubeClient(cluster),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(*kubelet, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	plugin.KeepFresh(ctx, *fresh)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
