package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/dra/internal/claims"
	"outboard.dev/dra/internal/pooltest"
)

// Kubernetes evicts the pod of a device that fails, and only that one; its lease is gone with it.
// The last one: gpu2 is gone, and what is said here is of two servers.
func failedDevice(t *testing.T, s *stage) {
	library, fails := filepath.Join(pooltest.Programs(t), "fake_nvml"), s.put(t, "fails", "")
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	gpu3 := s.pool.ServeWith(t, []string{"FAKE_NVML_FAILS=" + fails}, "gpu3", 1, "--nvml", library)
	defer gpu3.Kill()
	names := []string{"one", "two", "three"}
	var there string
	var claim *resourceapi.ResourceClaim
	for _, name := range names {
		s.pod(t, name, "")
		found := s.isBound(t, name)
		if claims.Ours(found)[0].Pool == "gpu3" {
			there, claim = name, found
		}
	}
	if claim == nil {
		t.Fatal("no pod is on gpu3, and there are as many pods as devices")
	}
	s.leases(t, 3)
	devices := s.prepare(t, claim)
	s.works(t, devices)

	begin := time.Now()
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pooltest.Within(t, "the pod is evicted", func() error {
		pod := s.found(t, there)
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1.DisruptionTarget && pod.DeletionTimestamp != nil &&
				condition.Reason == "DeletionByDeviceTaintManager" {
				return nil
			}
		}
		return fmt.Errorf("it is not: %+v", pod.Status)
	})
	t.Logf("the pod was evicted after %v", time.Since(begin))
	for _, name := range names {
		if name != there && s.found(t, name).DeletionTimestamp != nil {
			t.Errorf("%s was evicted, whose device works", name)
		}
	}
	// As the kubelet does when its containers have ended.
	s.unprepare(t, claim)
	s.delete(t, there)
	for _, lease := range s.leases(t, 2) {
		if lease.Devices[0].Server == "gpu3" {
			t.Errorf("the failed device is leased: %+v", lease)
		}
	}
	s.pod(t, "next", "")
	time.Sleep(2 * time.Second)
	if pod := s.found(t, "next"); pod.Spec.NodeName != "" {
		t.Errorf("a pod got the failed device: %+v", pod.Spec)
	}
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	s.isBound(t, "next")
	for _, name := range append(names, "next") {
		if name != there {
			s.delete(t, name)
		}
	}
	s.leases(t, 0)
}

func (s *stage) found(t *testing.T, pod string) *v1.Pod {
	t.Helper()
	found, err := s.cluster.Admin.CoreV1().Pods("default").
		Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
