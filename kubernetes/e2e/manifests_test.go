package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/dra/internal/clustertest"
	"outboard.dev/dra/internal/kubelettest"
	"outboard.dev/dra/internal/pooltest"
)

// The manifests as an administrator applies them: Kubernetes makes pods of the Deployment and the
// DaemonSet, which run from our images with the arguments, variables, volumes and rights that the
// manifests give them. The broker's address is said in an overlay.
func TestManifests(t *testing.T) {
	if os.Getenv("OUTBOARD_IMAGES") == "" {
		t.Skip("OUTBOARD_IMAGES names no folder of images: `cargo xtask kubernetes` makes them")
	}
	s := &stage{
		cluster: clustertest.Start(t), pool: pooltest.Start(t), folder: "/var/lib/kubelet", all: t,
		cdi: "/var/run/cdi",
	}
	s.pool.Serve(t, "gpu1", 1)
	s.broker = s.pool.Client(t, "scheduler", "kubernetes")
	s.cluster.Node(t, "node1")
	s.cluster.Deploy(t, s.overlay(t))
	s.secret(t)
	for _, name := range []string{"plugins", "plugins_registry"} {
		if err := os.MkdirAll(filepath.Join(s.folder, name), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{"outboard-dra-controller", "outboard-dra-node"} {
		s.cluster.Play(t, made(t, s.cluster, namespace, "app.kubernetes.io/name="+part))
	}
	s.kubelet = kubelettest.Register(t, s.folder)
	s.isAlive(t)

	s.template(t, "part", "256Mi", "50")
	s.pod(t, "part", "part")
	claim := s.isBound(t, "part")
	devices := s.prepare(t, claim)
	// The client is the one that the init container has put on the node.
	s.works(t, devices)
	s.unprepare(t, claim)
	s.delete(t, "part")
	s.leases(t, 0)
}

// overlay is what an administrator has for a broker of the own.
func (s *stage) overlay(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	ours, err := filepath.Abs("../../deploy/kubernetes/dra")
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = filepath.Rel(folder, ours); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`resources: [%s]
configMapGenerator:
  - name: outboard-dra-pool
    namespace: outboard-dra
    behavior: merge
    literals:
      - OUTBOARD_POOL=%s
      - OUTBOARD_POOL_FINGERPRINT=%s
`, ours, s.pool.URL, s.pool.Fingerprint)
	file := filepath.Join(folder, "kustomization.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// secret makes what docs/kubernetes.md has an administrator make.
func (s *stage) secret(t *testing.T) {
	t.Helper()
	token, err := os.ReadFile(s.pool.Token(t, "scheduler", "kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	secret(t, s.cluster, namespace, "outboard-dra",
		map[string][]byte{"token": token, "key": []byte(strings.Repeat("0a", 32))})
}

// isAlive asks as the controller's probe does.
func (s *stage) isAlive(t *testing.T) {
	t.Helper()
	deployed, err := s.cluster.Admin.AppsV1().Deployments(namespace).
		Get(t.Context(), "outboard-dra-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	container := deployed.Spec.Template.Spec.Containers[0]
	probe := container.LivenessProbe.HTTPGet
	// The kubelet looks at no certificate, either.
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	url := fmt.Sprintf("https://127.0.0.1:%d%s", container.Ports[0].ContainerPort, probe.Path)
	pooltest.Within(t, "the controller is alive", func() error {
		answer, err := client.Get(url)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("its probe says %s", answer.Status)
		}
		return nil
	})
}

// made is the one pod that Kubernetes has made of a manifest, and bound to the node.
func made(t *testing.T, cluster *clustertest.Cluster, namespace, label string) *v1.Pod {
	t.Helper()
	var found *v1.Pod
	pooltest.Within(t, "there is a pod of "+label, func() error {
		all, err := cluster.Admin.CoreV1().Pods(namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return err
		}
		if len(all.Items) != 1 || all.Items[0].Spec.NodeName != "node1" {
			return fmt.Errorf("there are %+v", all.Items)
		}
		found = &all.Items[0]
		return nil
	})
	return found
}
