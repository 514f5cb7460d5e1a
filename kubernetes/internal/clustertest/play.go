package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Play runs a pod's containers as kubelet and container engine would, on this machine as its node:
// init containers to their end, then the others until the test ends. They have the machine's
// network, and what is said of system calls (seccomp) is left out.
// Some mounts are for the test's sake.
func (c *Cluster) Play(t testing.TB, pod *v1.Pod, mounts ...specs.Mount) []*Process {
	t.Helper()
	volumes := c.volumes(t, pod)
	var hosts strings.Builder
	services, err := c.Admin.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range services.Items {
		fmt.Fprintf(&hosts, "127.0.0.1 %s.%s.svc\n", service.Name, service.Namespace)
	}
	prepare := func(container *v1.Container) []string {
		bundle := newBundle(t)
		file := filepath.Join(bundle.folder, "hosts")
		if err := os.WriteFile(file, []byte(hosts.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		spec := c.played(t, pod, container, volumes)
		spec.Mounts = append(append(spec.Mounts, bind(file, "/etc/hosts")), mounts...)
		return bundle.command(t, spec)
	}
	for _, container := range pod.Spec.InitContainers {
		Run(t, c.folder, prepare(&container)...).Succeeds(t)
	}
	var running []*Process
	for _, container := range pod.Spec.Containers {
		running = append(running, Run(t, c.folder, prepare(&container)...))
	}
	return running
}

// played is a container as an OCI runtime wants it.
func (c *Cluster) played(
	t testing.TB, pod *v1.Pod, container *v1.Container, volumes map[string]string,
) *specs.Spec {
	t.Helper()
	image := imageOf(t, container.Image)
	command := container.Command
	if command == nil {
		command = image.Entrypoint
	}
	arguments := container.Args
	if arguments == nil && container.Command == nil {
		arguments = image.Cmd
	}
	spec := confined(append(append([]string{}, command...), arguments...))
	isReadOnly := container.SecurityContext.ReadOnlyRootFilesystem
	spec.Root = &specs.Root{Path: image.root, Readonly: isReadOnly != nil && *isReadOnly}
	spec.Process.User = user(t, pod, container, image)
	spec.Process.Env = append(image.Env, c.environment(t, pod, container)...)
	spec.Process.NoNewPrivileges = !*container.SecurityContext.AllowPrivilegeEscalation
	spec.Process.Capabilities = capabilities(t, container)
	for _, mount := range container.VolumeMounts {
		how := "rw"
		if mount.ReadOnly {
			how = "ro"
		}
		spec.Mounts = append(spec.Mounts, specs.Mount{
			Destination: mount.MountPath, Type: "bind", Source: volumes[mount.Name],
			Options: []string{how, "rbind"},
		})
	}
	if limit := container.Resources.Limits.Memory(); !limit.IsZero() {
		bytes := limit.Value()
		spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &bytes}}
	}
	return spec
}

func user(t testing.TB, pod *v1.Pod, container *v1.Container, image *image) specs.User {
	t.Helper()
	var found specs.User
	own, groupOfOwn, _ := strings.Cut(image.User, ":")
	for text, into := range map[string]*uint32{own: &found.UID, groupOfOwn: &found.GID} {
		if number, err := strconv.ParseUint(text, 10, 32); err == nil {
			*into = uint32(number)
		}
	}
	all, one := pod.Spec.SecurityContext, container.SecurityContext
	for _, said := range []*int64{all.RunAsUser, one.RunAsUser} {
		if said != nil {
			found.UID = uint32(*said)
		}
	}
	for _, said := range []*int64{all.RunAsGroup, one.RunAsGroup} {
		if said != nil {
			found.GID = uint32(*said)
		}
	}
	if all.FSGroup != nil {
		found.AdditionalGids = append(found.AdditionalGids, uint32(*all.FSGroup))
	}
	if all.RunAsNonRoot != nil && *all.RunAsNonRoot && found.UID == 0 {
		t.Fatalf("%s would run as root", container.Name)
	}
	return found
}

// capabilities are none but those that the container adds.
func capabilities(t testing.TB, container *v1.Container) *specs.LinuxCapabilities {
	t.Helper()
	said := container.SecurityContext.Capabilities
	if len(said.Drop) != 1 || said.Drop[0] != "ALL" {
		t.Fatalf("%s keeps capabilities: %v", container.Name, said)
	}
	var names []string
	for _, name := range said.Add {
		names = append(names, "CAP_"+string(name))
	}
	return &specs.LinuxCapabilities{Bounding: names, Effective: names, Permitted: names}
}

func (c *Cluster) environment(t testing.TB, pod *v1.Pod, container *v1.Container) []string {
	t.Helper()
	host, port, _ := strings.Cut(strings.TrimPrefix(c.Config.Host, "https://"), ":")
	found := []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	for _, from := range container.EnvFrom {
		for name, value := range c.configMap(t, pod, from.ConfigMapRef.Name).Data {
			found = append(found, name+"="+value)
		}
	}
	for _, variable := range container.Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil && from.FieldRef != nil {
			value = field(t, pod, from.FieldRef)
		} else if from != nil {
			value = string(c.secret(t, pod, from.SecretKeyRef.Name).Data[from.SecretKeyRef.Key])
		}
		found = append(found, variable.Name+"="+value)
	}
	return found
}

func field(t testing.TB, pod *v1.Pod, from *v1.ObjectFieldSelector) string {
	t.Helper()
	switch from.FieldPath {
	case "spec.nodeName":
		return pod.Spec.NodeName
	case "metadata.namespace":
		return pod.Namespace
	}
	t.Fatalf("no such field is played: %s", from.FieldPath)
	return ""
}
