package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	nodeapi "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/dra/internal/clustertest"
	"outboard.dev/dra/internal/pooltest"
)

// A server on each node, and a job that uses it: deploy/kubernetes/server.yaml and client.yaml, as
// docs/containers.md says. What differs: the software device in place of NVIDIA's driver, and one
// of our programs in place of one with PyTorch.
func TestServerAndClientManifests(t *testing.T) {
	if os.Getenv("OUTBOARD_IMAGES") == "" {
		t.Skip("OUTBOARD_IMAGES names no folder of images: `cargo xtask kubernetes` makes them")
	}
	cluster := clustertest.Start(t)
	// As NVIDIA's GPU operator has it.
	cluster.Node(t, "node1", "nvidia.com/gpu.present=true")
	_, err := cluster.Admin.NodeV1().RuntimeClasses().Create(t.Context(), &nodeapi.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "nvidia"}, Handler: "nvidia",
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.ApplyText(t, replaced(t, "server.yaml", `driver = "nvidia"`, `driver = "cpu"`), "")
	state := filepath.Join(t.TempDir(), "outboard-state")
	output, err := exec.Command(filepath.Join(pooltest.Install(t), "bin/outboard"), "token", "create",
		"--state", state, "--owner", "team-a", "--memory", "20G", "--json",
		"--address", "outboard.outboard.svc").Output()
	if err != nil {
		t.Fatalf("no token: %v", err)
	}
	var told struct{ Token, Fingerprint string }
	if err := json.Unmarshal(output, &told); err != nil {
		t.Fatal(err)
	}
	content := map[string][]byte{}
	for _, name := range []string{"server.crt", "server.key", "tokens.json"} {
		if content[name], err = os.ReadFile(filepath.Join(state, name)); err != nil {
			t.Fatal(err)
		}
	}
	secret(t, cluster, "outboard", "outboard-server", content)
	cluster.Play(t, made(t, cluster, "outboard", "app.kubernetes.io/name=outboard-server"))
	for _, path := range []string{"healthz", "readyz"} {
		pooltest.Within(t, "the server's probe is answered", func() error {
			answer, err := http.Get("http://127.0.0.1:9471/" + path)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", path, answer.Status)
			}
			return nil
		})
	}

	secret(t, cluster, "default", "outboard-client", map[string][]byte{
		"token": []byte(told.Token), "fingerprint": []byte(told.Fingerprint),
	})
	job := replaced(t, "client.yaml", "pytorch/pytorch:latest", "outboard-client:0.1.0")
	from := strings.Index(job, `command: ["python"`)
	line := job[from : from+strings.Index(job[from:], "\n")]
	job = strings.Replace(job, line, `command: ["/programs/attributes"]`, 1)
	cluster.ApplyText(t, job, "default")
	pod := made(t, cluster, "default", "batch.kubernetes.io/job-name=on-a-far-gpu")
	said := cluster.Play(t, pod, clustertest.Programs(t))[0].Succeeds(t)
	if !strings.Contains(said, "right") {
		t.Errorf("the program says %s", said)
	}
}

// replaced is one of our manifests with one thing replaced.
func replaced(t *testing.T, file, what, by string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), what) != 1 {
		t.Fatalf("%s does not have %s", file, what)
	}
	return strings.Replace(string(text), what, by, 1)
}

func secret(
	t *testing.T, cluster *clustertest.Cluster, namespace, name string, content map[string][]byte,
) {
	t.Helper()
	made := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: content}
	_, err := cluster.Admin.CoreV1().Secrets(namespace).
		Create(t.Context(), made, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
