package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"outboard.dev/dra/internal/names"
)

// Options are what an administrator says.
type Options struct {
	// Node is this node's name.
	Node string
	// State is the folder of leases and keys.
	State string
	// Install is the node's folder with Outboard's bin and lib.
	Install string
	// Libraries are further folders of libraries for programs in containers.
	Libraries string
	// Specs is the folder that the container engine reads.
	Specs string
	// Kubelet is the kubelet's folder.
	Kubelet string
	// Fresh is how often renewed leases are brought.
	Fresh time.Duration
}

// Run answers the kubelet until the context ends.
func Run(
	ctx context.Context, options Options, cluster kubernetes.Interface, leases Leases,
) error {
	written, err := NewSpecifications(options.Specs, options.Install, options.Libraries)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	folders := Folders{filepath.Join(options.State, "claims")}
	plugin := NewPlugin(leases, folders, written, stop)
	data := filepath.Join(options.Kubelet, "plugins", names.Driver)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, plugin,
		kubeletplugin.DriverName(names.Driver),
		kubeletplugin.NodeName(options.Node),
		kubeletplugin.KubeClient(cluster),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(options.Kubelet, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	plugin.KeepFresh(ctx, options.Fresh)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
