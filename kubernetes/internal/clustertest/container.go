package clustertest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"k8s.io/apimachinery/pkg/util/rand"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"outboard.dev/dra/internal/pooltest"
)

// longest is how long a program in a container may take, in seconds.
const longest = "60"

// Container runs a CUDA test program as a container engine would: in a container of runc, with
// what the devices' specifications say, as a user without rights, and with the machine's network.
// It gives what the program has said.
func Container(t testing.TB, specifications string, devices []string, user uint32,
	program ...string,
) (string, error) {
	t.Helper()
	bundle := newBundle(t)
	container := confined(append([]string{"/programs/" + program[0]}, program[1:]...))
	container.Process.User = specs.User{UID: user, GID: user}
	container.Process.Env = []string{"PATH=/usr/bin:/bin", "OUTBOARD_LOG=1"}
	// What t.TempDir makes is for its own user.
	for _, name := range []string{"", "rootfs", "rootfs/usr", "rootfs/opt", "rootfs/tmp"} {
		if err := os.MkdirAll(filepath.Join(bundle.folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(bundle.folder, "rootfs", name)); err != nil {
			t.Fatal(err)
		}
	}
	container.Mounts = append(container.Mounts,
		bind("/usr", "/usr"), Programs(t))
	cache, err := cdi.NewCache(cdi.WithSpecDirs(specifications))
	if err != nil {
		t.Fatal(err)
	}
	if missing, err := cache.InjectDevices(container, devices...); err != nil {
		t.Fatalf("%v: %v", missing, err)
	}
	command := append([]string{longest}, bundle.command(t, container)...)
	output, err := exec.Command("timeout", command...).CombinedOutput()
	return string(output), err
}

// bundle is what runc runs.
type bundle struct{ folder, name string }

func newBundle(t testing.TB) *bundle {
	t.Helper()
	return &bundle{t.TempDir(), "outboard-test-" + rand.String(8)}
}

// command writes the bundle, and gives the command that runs it. When the test ends, so does the
// container, whatever has become of runc.
func (b *bundle) command(t testing.TB, container *specs.Spec) []string {
	t.Helper()
	text, err := json.Marshal(container)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.folder, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	runc := []string{
		filepath.Join(programs(t), "runc"), "--root", filepath.Join(b.folder, "state"),
	}
	t.Cleanup(func() {
		_ = exec.Command(runc[0], append(runc[1:], "delete", "--force", b.name)...).Run()
	})
	return append(runc, "run", "--bundle", b.folder, b.name)
}

// confined is a container that has a program, and what all have.
func confined(program []string) *specs.Spec {
	return &specs.Spec{
		Version: "1.0.0",
		Process: &specs.Process{Args: program, Cwd: "/", NoNewPrivileges: true},
		Root:    &specs.Root{Path: "rootfs", Readonly: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"mode=1777"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1777"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
			{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
		}},
	}
}

// Programs has the CUDA test programs in a container.
func Programs(t testing.TB) specs.Mount { return bind(pooltest.Programs(t), "/programs") }

func bind(from, to string) specs.Mount {
	return specs.Mount{
		Destination: to, Type: "bind", Source: from, Options: []string{"ro", "rbind"},
	}
}
