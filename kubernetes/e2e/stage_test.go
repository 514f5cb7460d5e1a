package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/claims"
	"outboard.dev/dra/internal/clustertest"
	"outboard.dev/dra/internal/handover"
	"outboard.dev/dra/internal/kubelettest"
	"outboard.dev/dra/internal/names"
	"outboard.dev/dra/internal/pooltest"
)

const (
	namespace = "outboard-dra"
	// user is as whom the pods' containers run.
	user = 10001
)

// stage is a cluster with a pool: all of it real but the kubelet.
type stage struct {
	cluster *clustertest.Cluster
	pool    *pooltest.Pool
	broker  *broker.Client
	folder  string
	// cdi is where container engines find specifications of devices.
	cdi        string
	program    string
	gpu2       *pooltest.Server
	controller *clustertest.Process
	kubelet    *kubelettest.Kubelet
	// all is the test that ends what was started in any part of it.
	all *testing.T
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		cluster: clustertest.Start(t), pool: pooltest.Start(t), folder: t.TempDir(), all: t,
	}
	// Containers of others go through it.
	if err := os.Chmod(s.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	s.cdi = filepath.Join(s.folder, "cdi")
	s.program = filepath.Join(os.Getenv("OUTBOARD_CLUSTER"), "outboard-dra")
	s.pool.Serve(t, "gpu1", 2)
	s.gpu2 = s.pool.Serve(t, "gpu2", 1, "--label", "rack=r7")
	s.broker = s.pool.Client(t, "scheduler", "kubernetes")
	s.cluster.Node(t, "node1")
	s.cluster.Deploy(t, "../../deploy/kubernetes/dra")
	s.startController(t)
	s.startNode(t)
	s.kubelet = kubelettest.Register(t, s.folder)
	pooltest.Within(t, "the pool is published", func() error {
		found, err := s.cluster.Admin.ResourceV1().ResourceSlices().
			List(t.Context(), metav1.ListOptions{})
		if err == nil && len(found.Items) != 2 {
			err = fmt.Errorf("there are %d slices", len(found.Items))
		}
		return err
	})
	return s
}

func (s *stage) put(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(s.folder, name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// startController starts it with the deployment's rights and flags, but where paths differ here.
func (s *stage) startController(t *testing.T) {
	t.Helper()
	deployed, err := s.cluster.Admin.AppsV1().Deployments(namespace).
		Get(t.Context(), "outboard-dra-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	arguments := append([]string{s.program}, deployed.Spec.Template.Spec.Containers[0].Args...)
	token := s.cluster.Token(t, namespace, "outboard-dra-controller", "node1")
	s.controller = clustertest.Run(s.all, s.folder, append(arguments,
		"--kubeconfig="+s.cluster.Kubeconfig(t, token),
		"--pool="+s.pool.URL, "--pool-fingerprint="+s.pool.Fingerprint,
		"--pool-token-file="+s.pool.Token(t, "scheduler", "kubernetes"),
		"--key-file="+s.put(t, "key", strings.Repeat("0a", 32)),
		"--listen=127.0.0.1:0", "--address=", "--every=1s", "--patience=3s")...)
}

// startNode does the same for the node's part, which has the one capability that it is to have.
func (s *stage) startNode(t *testing.T) {
	t.Helper()
	deployed, err := s.cluster.Admin.AppsV1().DaemonSets(namespace).
		Get(t.Context(), "outboard-dra-node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	container := deployed.Spec.Template.Spec.Containers[0]
	if added := container.SecurityContext.Capabilities.Add; len(added) != 1 || added[0] != "CHOWN" {
		t.Fatalf("it is to have CHOWN only: %v", added)
	}
	if err := os.Mkdir(filepath.Join(s.folder, "plugins_registry"), 0o700); err != nil {
		t.Fatal(err)
	}
	token := s.cluster.Token(t, namespace, "outboard-dra-node", "node1")
	arguments := append([]string{
		"/usr/bin/setpriv", "--bounding-set=-all,+chown", "--inh-caps=-all", s.program,
	}, container.Args...)
	clustertest.Run(t, s.folder, append(arguments,
		"--kubeconfig="+s.cluster.Kubeconfig(t, token), "--node=node1",
		"--token-file="+s.put(t, "token", s.cluster.Token(
			t, namespace, "outboard-dra-node", "node1", handover.Audience)),
		"--state="+filepath.Join(s.folder, "state"), "--install="+pooltest.Install(t),
		"--cdi="+s.cdi, "--kubelet="+s.folder, "--fresh=1s")...)
}

// template makes a template for claims for a part of a device.
func (s *stage) template(t *testing.T, name, memory, percents string) {
	t.Helper()
	s.templateIn(t, "default", name, memory, percents)
}

func (s *stage) templateIn(t *testing.T, namespace, name, memory, percents string) {
	t.Helper()
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{
		Name: "gpu",
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "outboard-gpu-part",
			Capacity: &resourceapi.CapacityRequirements{
				Requests: map[resourceapi.QualifiedName]resource.Quantity{
					names.Memory:          resource.MustParse(memory),
					names.Multiprocessors: resource.MustParse(percents),
				},
			},
		},
	}}
	_, err := s.cluster.Admin.ResourceV1().ResourceClaimTemplates(namespace).
		Create(t.Context(), template, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// pod makes a pod with a claim from a template; without one, with a whole device as an extended
// resource.
func (s *stage) pod(t *testing.T, name, template string) {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			SecurityContext: &v1.PodSecurityContext{RunAsUser: ptr.To(int64(user))},
			Containers:      []v1.Container{{Name: "program", Image: "program"}},
		},
	}
	container := &pod.Spec.Containers[0]
	if template == "" {
		container.Resources.Limits = v1.ResourceList{"outboard.dev/gpu": resource.MustParse("1")}
	} else {
		pod.Spec.ResourceClaims = []v1.PodResourceClaim{
			{Name: "gpu", ResourceClaimTemplateName: &template},
		}
		container.Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
	}
	pooltest.Within(t, "the namespace has its service account", func() error {
		_, err := s.cluster.Admin.CoreV1().Pods("default").
			Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
}

func (s *stage) delete(t *testing.T, pod string) {
	t.Helper()
	err := s.cluster.Admin.CoreV1().Pods("default").Delete(t.Context(), pod,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
	if err != nil {
		t.Fatal(err)
	}
}

// isBound waits for the pod to be bound, and gives its claim.
func (s *stage) isBound(t *testing.T, name string) *resourceapi.ResourceClaim {
	t.Helper()
	var claim *resourceapi.ResourceClaim
	pooltest.Within(t, name+" is bound", func() error {
		pod, err := s.cluster.Admin.CoreV1().Pods("default").
			Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim = s.claimOf(t, pod)
		if pod.Spec.NodeName == "" {
			return fmt.Errorf("it is not: %+v, %+v", pod.Status, claim)
		}
		return nil
	})
	if _, isLeased := claims.Told(claim); !isLeased {
		t.Fatalf("%s was bound before there was a lease: %+v", name, claim.Status.Devices)
	}
	return claim
}

// claimOf is the pod's claim, or nil.
func (s *stage) claimOf(t *testing.T, pod *v1.Pod) *resourceapi.ResourceClaim {
	t.Helper()
	var name *string
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		name = &extended.ResourceClaimName
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		name = status.ResourceClaimName
	}
	if name == nil {
		return nil
	}
	claim, err := s.cluster.Admin.ResourceV1().ResourceClaims("default").
		Get(t.Context(), *name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return claim
}

// isTold waits until the claim of a pod says why it has no lease.
func (s *stage) isTold(t *testing.T, name, reason, sentence string) {
	t.Helper()
	pooltest.Within(t, "the claim says "+reason, func() error {
		pod, err := s.cluster.Admin.CoreV1().Pods("default").
			Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim := s.claimOf(t, pod)
		told, _ := claims.Told(claim)
		if told != reason || !strings.Contains(fmt.Sprint(claim.Status.Devices), sentence) {
			return fmt.Errorf("it says %+v", claim)
		}
		return nil
	})
}

// leases waits until there are so many, and gives them.
func (s *stage) leases(t *testing.T, count int) []broker.Lease {
	t.Helper()
	var found []broker.Lease
	pooltest.Within(t, fmt.Sprint("there are ", count, " leases"), func() error {
		pool, err := s.broker.Pool(t.Context())
		if err != nil {
			return err
		}
		found = nil
		for _, lease := range pool.Leases {
			if lease.Over == nil {
				found = append(found, lease)
			}
		}
		if len(found) != count {
			return fmt.Errorf("there are %+v", found)
		}
		return nil
	})
	return found
}
