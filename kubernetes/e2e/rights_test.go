package e2e

import (
	"errors"
	"strings"
	"testing"

	authorizationapi "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"outboard.dev/dra/internal/handover"
	"outboard.dev/dra/internal/pooltest"
)

// As it is: its jobs get what they ask for.
func example(t *testing.T, s *stage) {
	s.cluster.Apply(t, "../../deploy/kubernetes/dra/example.yaml", "default")
	names := []string{"on-a-part", "on-a-whole"}
	pods := map[string]*v1.Pod{}
	for _, name := range names {
		pods[name] = made(t, s.cluster, "default", "batch.kubernetes.io/job-name="+name)
	}
	for _, lease := range s.leases(t, 2) {
		usage := lease.Devices[0].Usage
		if !usage.Exclusive && usage.Percent != 25 {
			t.Errorf("there is %+v", lease)
		}
	}
	for _, name := range names {
		s.endJob(t, "default", name, pods[name].Name)
	}
	s.leases(t, 0)
}

// endJob ends a job, and plays the kubelet, who ends its pod.
func (s *stage) endJob(t *testing.T, namespace, name, pod string) {
	t.Helper()
	err := s.cluster.Admin.BatchV1().Jobs(namespace).Delete(t.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	if err != nil {
		t.Fatal(err)
	}
	err = s.cluster.Admin.CoreV1().Pods(namespace).Delete(t.Context(), pod,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
	if err != nil {
		t.Fatal(err)
	}
}

// As docs/kubernetes.md says it.
func quota(t *testing.T, s *stage) {
	const namespace = "kube-public"
	const one = "outboard-gpu-part.deviceclass.resource.k8s.io/devices"
	_, err := s.cluster.Admin.CoreV1().ResourceQuotas(namespace).Create(t.Context(),
		&v1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
			Spec:       v1.ResourceQuotaSpec{Hard: v1.ResourceList{one: resource.MustParse("1")}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pooltest.Within(t, "the quota counts", func() error {
		found, err := s.cluster.Admin.CoreV1().ResourceQuotas(namespace).
			Get(t.Context(), "gpus", metav1.GetOptions{})
		if err == nil && found.Status.Used == nil {
			err = errors.New("nothing is counted yet")
		}
		return err
	})
	claim := func(name string) error {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "outboard-gpu-part"},
		}}
		_, err := s.cluster.Admin.ResourceV1().ResourceClaims(namespace).
			Create(t.Context(), claim, metav1.CreateOptions{})
		return err
	}
	if err := claim("first"); err != nil {
		t.Fatal(err)
	}
	if err := claim("second"); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("the second is told %v", err)
	}
}

func whoGetsKeys(t *testing.T, s *stage) {
	s.cluster.Node(t, "node2")
	// The pod is to be on node1.
	node, err := s.cluster.Admin.CoreV1().Nodes().Get(t.Context(), "node2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Unschedulable = true
	_, err = s.cluster.Admin.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.pod(t, "secret", "part")
	claim := s.isBound(t, "secret")
	ask := func(token string) (*handover.Handover, error) {
		client := handover.Client{
			Cluster: s.cluster.Admin, Namespace: namespace, TokenFile: s.put(t, "some-token", token),
		}
		return client.Claim(t.Context(), claim.UID)
	}
	const account = "outboard-dra-node"
	own, err := ask(s.cluster.Token(t, namespace, account, "node1", handover.Audience))
	if err != nil || own.Key == "" {
		t.Fatalf("the pod's node gets no key: %v", err)
	}
	for whose, token := range map[string]string{
		"another node":    s.cluster.Token(t, namespace, account, "node2", handover.Audience),
		"the API server":  s.cluster.Token(t, namespace, account, "node1"),
		"another account": s.cluster.Token(t, "default", "default", "node1", handover.Audience),
		"nobody":          "admin",
	} {
		if found, err := ask(token); err == nil {
			t.Errorf("the token of %s gets %+v", whose, found)
		}
	}
	s.delete(t, "secret")
	s.leases(t, 0)
}

// What the two parts may do, and not more.
func rights(t *testing.T, s *stage) {
	const group = "resource.k8s.io"
	for _, one := range []struct {
		account, verb, group, resource, sub, name string
		isAllowed                                 bool
	}{
		{"controller", "create", group, "resourceslices", "", "", true},
		{"controller", "update", group, "resourceclaims", "status", "", true},
		{"controller", "arbitrary-node:update", group, "resourceclaims", "driver", "outboard.dev", true},
		{"controller", "arbitrary-node:update", group, "resourceclaims", "driver", "other.dev", false},
		{"controller", "update", group, "resourceclaims", "", "", false},
		{"controller", "update", group, "resourceclaims", "binding", "", false},
		{"controller", "list", "", "pods", "", "", false},
		{"controller", "get", "", "secrets", "", "", false},
		{"controller", "create", "", "serviceaccounts", "token", "", false},
		{"node", "get", group, "resourceclaims", "", "", true},
		{"node", "list", group, "resourceclaims", "", "", false},
		{"node", "update", group, "resourceclaims", "status", "", false},
		{"node", "create", group, "resourceslices", "", "", false},
		{"node", "get", "", "secrets", "", "", false},
		{"node", "get", "", "pods", "", "", false},
		{"node", "update", "", "configmaps", "", handover.ConfigMap, false},
	} {
		review := &authorizationapi.SubjectAccessReview{
			Spec: authorizationapi.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + namespace + ":outboard-dra-" + one.account,
				ResourceAttributes: &authorizationapi.ResourceAttributes{
					Namespace: namespace, Verb: one.verb, Group: one.group,
					Resource: one.resource, Subresource: one.sub, Name: one.name,
				},
			},
		}
		found, err := s.cluster.Admin.AuthorizationV1().SubjectAccessReviews().
			Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if found.Status.Allowed != one.isAllowed {
			t.Errorf("%+v: %v", one, found.Status)
		}
	}
}
