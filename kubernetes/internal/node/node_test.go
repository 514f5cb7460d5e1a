package node_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"outboard.dev/dra/internal/claims"
	"outboard.dev/dra/internal/handover"
	"outboard.dev/dra/internal/pooltest"
)

type notYetError struct {
	devices []resourceapi.AllocatedDeviceStatus
}

func (e *notYetError) Error() string { return fmt.Sprintf("not yet: %+v", e.devices) }

func TestAContainerGetsItsClaim(t *testing.T) {
	s := newStage(t, time.Minute)
	claim := s.claim(t, "job", 0, 1)
	s.isTold(t, "job", claims.ReasonGranted)

	devices, err := s.kubelet.Prepare(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 1 || devices[0] != "outboard.dev/claim="+string(claim.UID) {
		t.Fatalf("a container is to get the lease once: %v", devices)
	}
	// The kubelet asks again after a restart.
	if again, err := s.kubelet.Prepare(t.Context(), claim); err != nil ||
		!slices.Equal(again, devices) {
		t.Fatalf("prepared again: %v, %v", again, err)
	}
	container := s.inject(t, devices)
	credentials := mounted(t, container, "/opt/outboard/credentials")
	for _, name := range []string{"lease", "key.pem"} {
		found, err := os.Stat(filepath.Join(credentials, name))
		if err != nil {
			t.Fatal(err)
		}
		owner := found.Sys().(*syscall.Stat_t).Uid
		if found.Mode().Perm() != 0o400 || owner != user {
			t.Errorf("%s has mode %v and is of %d", name, found.Mode(), owner)
		}
	}
	if above, err := os.Stat(filepath.Dir(credentials)); err != nil ||
		above.Mode().Perm() != 0o700 {
		t.Errorf("others on the node get to the leases: %v, %v", above.Mode(), err)
	}
	if text := run(t, container, "devices"); strings.Count(text, "GPU-") != 2 {
		t.Errorf("the program has other devices: %s", text)
	}

	for range 2 {
		if err := s.kubelet.Unprepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(s.specs() + "/*")
	if _, gone := os.Stat(credentials); err != nil || !os.IsNotExist(gone) || len(left) > 0 {
		t.Errorf("something of the claim is left: %v, %v", gone, left)
	}

	err = s.cluster.ResourceV1().ResourceClaims("default").
		Delete(t.Context(), "job", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.isFree(t)
}

func TestOnlyTheNodeOfThePodGetsTheKey(t *testing.T) {
	s := newStage(t, time.Minute)
	claim := s.claim(t, "job", 0)
	s.isTold(t, "job", claims.ReasonGranted)
	if found, err := s.leases(t, "token of node1").Claim(t.Context(), claim.UID); err != nil ||
		!strings.Contains(found.Key, "PRIVATE KEY") {
		t.Fatalf("its own node gets nothing: %v", err)
	}
	for token, uid := range map[string]types.UID{
		"token of node2":           claim.UID,
		"token of no node":         claim.UID,
		"token of somebody":        claim.UID,
		"token for the API server": claim.UID,
		"no token of this cluster": claim.UID,
		"token of node1":           "no-such-claim",
	} {
		found, err := s.leases(t, token).Claim(t.Context(), uid)
		var refused *handover.RefusedError
		if found != nil || !errors.As(err, &refused) {
			t.Errorf("%s: %v, %v", token, found, err)
		}
	}
	// Who is not the controller that the cluster knows gets no token.
	told, err := s.cluster.CoreV1().ConfigMaps(namespace).
		Get(t.Context(), handover.ConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := handover.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	err = handover.Publish(
		t.Context(), s.cluster, namespace, told.Data[handover.AddressKey], other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.leases(t, "token of node1").Claim(t.Context(), claim.UID); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("a stranger was believed: %v", err)
	}
	// The kubelet hears why.
	if _, err := s.kubelet.Prepare(t.Context(), claim); err == nil ||
		!strings.Contains(err.Error(), "the controller does not answer") {
		t.Errorf("the kubelet is told %v", err)
	}
}

func TestARenewedLeaseReachesTheContainer(t *testing.T) {
	s := newStage(t, 6*time.Second)
	claim := s.claim(t, "job", 0)
	s.isTold(t, "job", claims.ReasonGranted)
	devices, err := s.kubelet.Prepare(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	container := s.inject(t, devices)
	file := filepath.Join(mounted(t, container, "/opt/outboard/credentials"), "lease")
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Longer than the lease would live.
	time.Sleep(8 * time.Second)
	if now, err := os.ReadFile(file); err != nil || string(now) == string(first) {
		t.Errorf("the container has the lease of before: %v", err)
	}
	if text := run(t, container, "attributes"); !strings.Contains(text, "right") {
		t.Errorf("the program says %s", text)
	}
}

func TestALeaseThatSomebodyEndsStaysEnded(t *testing.T) {
	s := newStage(t, time.Minute)
	s.claim(t, "job", 0)
	s.isTold(t, "job", claims.ReasonGranted)
	pool, err := s.broker.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if owner := pool.Leases[0].Owner; owner != "kubernetes.default" {
		t.Errorf("the lease is %s's", owner)
	}
	if err := s.broker.End(t.Context(), pool.Leases[0].Purpose); err != nil {
		t.Fatal(err)
	}
	s.isTold(t, "job", claims.ReasonEnded)
	s.isFree(t)
}

// isFree waits until nobody has a lease.
func (s *stage) isFree(t *testing.T) {
	t.Helper()
	pooltest.Within(t, "the lease is given back", func() error {
		pool, err := s.broker.Pool(t.Context())
		if err == nil && len(pool.Leases) > 0 {
			err = fmt.Errorf("there is %+v", pool.Leases)
		}
		return err
	})
}

// inject is what a container engine makes of the devices.
func (s *stage) inject(t *testing.T, devices []string) *specs.Spec {
	t.Helper()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(s.specs()))
	if err != nil {
		t.Fatal(err)
	}
	container := &specs.Spec{Process: &specs.Process{}}
	if missing, err := cache.InjectDevices(container, devices...); err != nil {
		t.Fatalf("%v: %v", missing, err)
	}
	return container
}

func mounted(t *testing.T, container *specs.Spec, inside string) string {
	t.Helper()
	for _, mount := range container.Mounts {
		if mount.Destination == inside && slices.Contains(mount.Options, "ro") {
			return mount.Source
		}
	}
	t.Fatalf("%s is not mounted read-only: %+v", inside, container.Mounts)
	return ""
}

// run runs a test program with the container's variables, and with its paths as on the node.
func run(t *testing.T, container *specs.Spec, name string) string {
	t.Helper()
	command := exec.Command(filepath.Join(pooltest.Programs(t), name))
	for _, variable := range container.Process.Env {
		for _, mount := range container.Mounts {
			variable = strings.ReplaceAll(variable, mount.Destination, mount.Source)
		}
		command.Env = append(command.Env, variable)
	}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, output)
	}
	return string(output)
}
