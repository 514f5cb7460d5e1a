package node_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	authenticationapi "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/claims"
	"outboard.dev/dra/internal/controller"
	"outboard.dev/dra/internal/handover"
	"outboard.dev/dra/internal/keys"
	"outboard.dev/dra/internal/kubelettest"
	"outboard.dev/dra/internal/names"
	"outboard.dev/dra/internal/node"
	"outboard.dev/dra/internal/pooltest"
)

const (
	namespace = "outboard"
	account   = "outboard-dra-node"
	// user is as whom the pod's containers run.
	user = 10001
)

// stage is a pool, a controller, and a node with its plug-in. Only the API server is played.
type stage struct {
	pool    *pooltest.Pool
	broker  *broker.Client
	cluster *fake.Clientset
	folder  string
	kubelet *kubelettest.Kubelet
}

// newStage starts them. Leases live for so long.
func newStage(t *testing.T, life time.Duration) *stage {
	t.Helper()
	s := &stage{pool: pooltest.Start(t), folder: t.TempDir()}
	s.pool.Serve(t, "gpu1", 2)
	s.broker = s.pool.Client(t, "scheduler", "kubernetes")
	s.cluster = fake.NewClientset(
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "cluster"}},
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: handover.ConfigMap, Namespace: namespace}},
	)
	s.cluster.PrependReactor("create", "tokenreviews", review)
	ctx, stop := context.WithCancel(t.Context())
	made, err := controller.New(controller.Options{
		OwnerPrefix: "kubernetes.", Group: "kubernetes", Every: time.Second, Life: life,
	}, s.broker, s.cluster, s.root(t))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	start := func(what string, run func() error) {
		running.Go(func() {
			if err := run(); err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	start("the controller", func() error {
		return made.RunAndServe(ctx, controller.Service{
			Listen: "127.0.0.1:0", Namespace: namespace, NodeAccount: account,
		})
	})
	// A kubelet has made it.
	if err := os.Mkdir(filepath.Join(s.folder, "plugins_registry"), 0o700); err != nil {
		t.Fatal(err)
	}
	leases := s.leases(t, "token of node1")
	start("the node", func() error {
		return node.Run(ctx, node.Options{
			Node: "node1", State: s.folder, Install: pooltest.Install(t),
			Specs: s.specs(), Kubelet: s.folder, Fresh: 500 * time.Millisecond,
		}, s.cluster, leases)
	})
	s.kubelet = kubelettest.Register(t, s.folder)
	return s
}

func (s *stage) specs() string { return filepath.Join(s.folder, "cdi") }

func (s *stage) root(t *testing.T) *keys.Root {
	t.Helper()
	root, err := keys.Read(s.put(t, "key",
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func (s *stage) put(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(s.folder, name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// leases is who asks the controller with that token.
func (s *stage) leases(t *testing.T, token string) *handover.Client {
	return &handover.Client{
		Cluster: s.cluster, Namespace: namespace, TokenFile: s.put(t, token, token),
	}
}

// review is the API server's judgement of tokens.
func review(action clienttesting.Action) (bool, runtime.Object, error) {
	found := action.(clienttesting.CreateAction).GetObject().(*authenticationapi.TokenReview)
	nodes := map[string]string{"token of node1": "node1", "token of node2": "node2"}
	status := &found.Status
	status.Audiences = found.Spec.Audiences
	status.User.Username = "system:serviceaccount:" + namespace + ":" + account
	switch token := found.Spec.Token; {
	case nodes[token] != "":
		status.Authenticated = true
		status.User.Extra = map[string]authenticationapi.ExtraValue{
			"authentication.kubernetes.io/node-name": {nodes[token]},
		}
	case token == "token of no node":
		status.Authenticated = true
	case token == "token of somebody":
		status.Authenticated = true
		status.User.Username = "system:serviceaccount:default:default"
	case token == "token for the API server":
		status.Authenticated = true
		status.Audiences = nil
	}
	return true, found, nil
}

// claim makes a claim as the scheduler leaves it, for a pod on node1.
func (s *stage) claim(t *testing.T, name string, devices ...int) *resourceapi.ResourceClaim {
	t.Helper()
	pool, err := s.broker.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "pod-of-uid"},
		Spec: v1.PodSpec{
			NodeName:        "node1",
			SecurityContext: &v1.PodSecurityContext{RunAsUser: ptr.To(int64(user))},
		},
	}
	if err := s.cluster.Tracker().Add(pod); err != nil {
		t.Fatal(err)
	}
	allocation := &resourceapi.AllocationResult{}
	for _, at := range devices {
		allocation.Devices.Results = append(allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{
				Request: "gpu", Driver: names.Driver, Pool: names.Pool("gpu1"),
				Device:            names.Device(pool.Servers[0].Devices[at].UUID),
				BindingConditions: []string{names.Leased},
			})
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "uid-" + pod.UID},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: allocation,
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{
				{Resource: "pods", Name: name, UID: pod.UID},
			},
		},
	}
	made, err := s.cluster.ResourceV1().ResourceClaims("default").
		Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// isTold waits until the cluster has been told of the claim's lease.
func (s *stage) isTold(t *testing.T, name, reason string) {
	t.Helper()
	pooltest.Within(t, "the claim's lease is "+reason, func() error {
		claim, err := s.cluster.ResourceV1().ResourceClaims("default").
			Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if told, _ := claims.Told(claim); told != reason {
			return &notYetError{claim.Status.Devices}
		}
		return nil
	})
}
