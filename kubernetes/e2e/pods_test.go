// Package e2e runs pods on a pool, in a cluster of real programs.
package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/claims"
	"outboard.dev/dra/internal/clustertest"
	"outboard.dev/dra/internal/pooltest"
)

func TestPods(t *testing.T) {
	s := newStage(t)
	for _, one := range []struct {
		what string
		test func(*testing.T, *stage)
	}{
		{"a part of a device", aPart},
		{"a whole device, without a claim", aWhole},
		{"a controller that is killed", killedController},
		{"a broker that is away", brokerAway},
		{"what the broker refuses", refused},
		{"a device that others have", takenByOthers},
		{"who gets keys", whoGetsKeys},
		{"rights", rights},
		{"the example", example},
		{"a quota by class", quota},
		{"a server that is silent", silentServer},
		{"a device that fails", failedDevice},
	} {
		// Each begins with a pool that is free.
		if !t.Run(one.what, func(t *testing.T) { one.test(t, s) }) {
			t.FailNow()
		}
	}
}

func (s *stage) prepare(t *testing.T, claim *resourceapi.ResourceClaim) []string {
	t.Helper()
	devices, err := s.kubelet.Prepare(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

func (s *stage) unprepare(t *testing.T, claim *resourceapi.ResourceClaim) {
	t.Helper()
	if err := s.kubelet.Unprepare(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
}

// runs runs a program in a container with the claim's devices.
func (s *stage) runs(t *testing.T, devices []string, program ...string) string {
	t.Helper()
	said, err := clustertest.Container(t, s.cdi, devices, user, program...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", program, err, said)
	}
	return said
}

// works runs a program on a claim's devices.
func (s *stage) works(t *testing.T, devices []string) {
	t.Helper()
	if said := s.runs(t, devices, "attributes"); !strings.Contains(said, "right") {
		t.Errorf("the program says %s", said)
	}
}

func aPart(t *testing.T, s *stage) {
	s.template(t, "part", "256Mi", "50")
	s.pod(t, "part", "part")
	claim := s.isBound(t, "part")
	lease := s.leases(t, 1)[0]
	if lease.Owner != "kubernetes.default" || len(lease.Devices) != 1 ||
		lease.Devices[0].Memory != 256<<20 ||
		lease.Devices[0].Usage != (broker.Usage{Percent: 50}) {
		t.Errorf("the lease is %+v", lease)
	}
	devices := s.prepare(t, claim)
	s.works(t, devices)
	if said := s.runs(t, devices, "devices"); strings.Count(said, "GPU-") != 1 {
		t.Errorf("the program does not see one device: %s", said)
	}
	// The device has that much memory, and not more.
	if said := s.runs(t, devices, "memory_limit", "268435456"); !strings.Contains(said, "done") {
		t.Errorf("the program says %s", said)
	}
	s.unprepare(t, claim)
	if said, err := clustertest.Container(
		t, t.TempDir(), nil, user, "attributes"); err == nil {
		t.Errorf("without the claim the program ran, too: %s", said)
	}
	// It has ended, as the kubelet says.
	pod, err := s.cluster.Admin.CoreV1().Pods("default").
		Get(t.Context(), "part", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = v1.PodSucceeded
	_, err = s.cluster.Admin.CoreV1().Pods("default").
		UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.leases(t, 0)
	t.Logf("the lease was gone after %v", time.Since(begin))
	s.delete(t, "part")
}

func aWhole(t *testing.T, s *stage) {
	s.pod(t, "whole", "")
	claim := s.isBound(t, "whole")
	lease := s.leases(t, 1)[0]
	if !lease.Devices[0].Usage.Exclusive {
		t.Errorf("the lease is %+v", lease)
	}
	devices := s.prepare(t, claim)
	s.works(t, devices)
	s.unprepare(t, claim)
	s.delete(t, "whole")
	s.leases(t, 0)
}

func killedController(t *testing.T, s *stage) {
	for _, name := range []string{"stays", "goes"} {
		s.pod(t, name, "part")
	}
	stays := s.isBound(t, "stays")
	s.isBound(t, "goes")
	before := s.leases(t, 2)
	devices := s.prepare(t, stays)
	s.controller.Kill()
	s.delete(t, "goes")
	s.pod(t, "comes", "part")
	// Nobody has missed it yet.
	if said := s.runs(t, devices, "attributes"); !strings.Contains(said, "right") {
		t.Errorf("without the controller, the program says %s", said)
	}
	time.Sleep(2 * time.Second)
	s.leases(t, 2)
	s.startController(t)
	s.isBound(t, "comes")
	number := func(claim *resourceapi.ResourceClaim, all []broker.Lease) uint64 {
		for _, lease := range all {
			if strings.Contains(lease.Purpose, string(claim.UID)) {
				return lease.Number
			}
		}
		return 0
	}
	after := s.leases(t, 2)
	if was, is := number(stays, before), number(stays, after); was == 0 || was != is {
		t.Errorf("lease %d became %d", was, is)
	}
	// The key is the one of before.
	devices = s.prepare(t, stays)
	if said := s.runs(t, devices, "attributes"); !strings.Contains(said, "right") {
		t.Errorf("with the next controller, the program says %s", said)
	}
	s.unprepare(t, stays)
	s.delete(t, "stays")
	s.delete(t, "comes")
	s.leases(t, 0)
}

func brokerAway(t *testing.T, s *stage) {
	s.pod(t, "here", "part")
	here := s.isBound(t, "here")
	devices := s.prepare(t, here)
	s.pool.Kill()
	s.pod(t, "waits", "part")
	s.isTold(t, "waits", claims.ReasonAway, "the broker does not answer")
	if said := s.runs(t, devices, "attributes"); !strings.Contains(said, "right") {
		t.Errorf("without the broker, the program says %s", said)
	}
	s.pool.Restart(t)
	s.isBound(t, "waits")
	s.unprepare(t, here)
	s.delete(t, "here")
	s.delete(t, "waits")
	s.leases(t, 0)
}

// A device of which somebody got all between two looks at the pool: the broker refuses, and the
// scheduler chooses again when the device is marked.
func refused(t *testing.T, s *stage) {
	pool, err := s.broker.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	admin := s.pool.Client(t, "admin", "root")
	s.controller.Kill()
	request := broker.Request{Usage: broker.Usage{Exclusive: true}}
	// The scheduler tries gpu1's first.
	for _, device := range pool.Servers[0].Devices {
		request.Only = append(request.Only,
			broker.Exact{Server: pool.Servers[0].Name, Device: device.UUID})
	}
	request.Devices = len(request.Only)
	s.someoneTakes(t, admin, request)
	s.pod(t, "again", "part")
	// It has chosen before the next controller marks what others have.
	pooltest.Within(t, "the scheduler has chosen", func() error {
		pod, err := s.cluster.Admin.CoreV1().Pods("default").
			Get(t.Context(), "again", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim := s.claimOf(t, pod); len(claims.Ours(claim)) == 0 {
			return &claimError{claim}
		} else if at := claims.Ours(claim)[0].Pool; at != "gpu1" {
			t.Fatalf("it has chosen one of %s", at)
		}
		return nil
	})
	s.startController(t)
	s.isTold(t, "again", claims.ReasonWaiting, "is not free")
	claim := s.isBound(t, "again")
	if at := claims.Ours(claim)[0].Pool; at != "gpu2" {
		t.Errorf("it is on %s, which somebody else has", at)
	}
	s.delete(t, "again")
	s.leases(t, 1)
	if err := admin.End(t.Context(), "tests"); err != nil {
		t.Fatal(err)
	}
	s.leases(t, 0)
}

// someoneTakes has somebody outside the cluster take devices, as soon as they are free.
func (s *stage) someoneTakes(t *testing.T, admin *broker.Client, request broker.Request) {
	t.Helper()
	request.Owner, request.Group = "ada", "everybody"
	request.Servers, request.MayShare = "any", "nobody"
	pooltest.Within(t, "somebody has devices", func() error {
		standing, err := admin.Ask(t.Context(), broker.Ask{
			ClientKey: strings.Repeat("0a", 32), Purpose: "tests", LifeSeconds: 600,
			Request: request,
		})
		if err == nil && !standing.IsGranted() {
			err = errors.New(standing.Because)
		}
		return err
	})
}

type claimError struct{ claim *resourceapi.ResourceClaim }

func (e *claimError) Error() string { return "not yet: " + e.claim.String() }

// Whole devices that are partly somebody else's are left to others.
func takenByOthers(t *testing.T, s *stage) {
	admin := s.pool.Client(t, "admin", "root")
	s.someoneTakes(t, admin, broker.Request{
		Usage: broker.Usage{Percent: 10}, Devices: 3, Memory: 1 << 20,
	})
	time.Sleep(3 * time.Second)
	s.pod(t, "whole", "")
	s.pod(t, "part", "part")
	s.isBound(t, "part")
	pod, err := s.cluster.Admin.CoreV1().Pods("default").
		Get(t.Context(), "whole", metav1.GetOptions{})
	if err != nil || pod.Spec.NodeName != "" {
		t.Errorf("a device of which others have a part was given as a whole: %+v, %v", pod, err)
	}
	if err := admin.End(t.Context(), "tests"); err != nil {
		t.Fatal(err)
	}
	// The scheduler tries again when the slices change.
	s.isBound(t, "whole")
	s.delete(t, "whole")
	s.delete(t, "part")
	s.leases(t, 0)
}

// It ends a server. Its device gets no pods, and the others do.
func silentServer(t *testing.T, s *stage) {
	s.gpu2.Kill()
	pooltest.Within(t, "the scheduler is told", func() error {
		all, err := s.cluster.Admin.ResourceV1().ResourceSlices().
			List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, slice := range all.Items {
			for _, device := range slice.Spec.Devices {
				isSilent := len(device.Taints) == 1 &&
					device.Taints[0].Key == "outboard.dev/silent"
				if isSilent != (slice.Spec.Pool.Name == "gpu2") {
					return fmt.Errorf("%s has %+v", slice.Spec.Pool.Name, device.Taints)
				}
			}
		}
		return nil
	})
	names := []string{"first", "second", "third"}
	for _, name := range names {
		s.pod(t, name, "")
	}
	// Two of three: which ones, the scheduler says.
	for _, lease := range s.leases(t, 2) {
		if lease.Devices[0].Server != "gpu1" {
			t.Errorf("a silent server has %+v", lease)
		}
	}
	for _, name := range names {
		s.delete(t, name)
	}
	s.leases(t, 0)
}
