package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchapi "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"outboard.dev/dra/internal/clustertest"
	"outboard.dev/dra/internal/pooltest"
)

// What Kueue is told: what deploy/kubernetes/dra/kueue.yaml says that it is to be told, and where
// it is. Without its webhooks jobs are suspended by who makes them.
const kueueConfiguration = `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "0"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: %d, certDir: %s}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
integrations: {frameworks: ["batch/job"]}
`

// Kueue counts devices by device class, and holds back a job that is beyond its queue's quota.
func TestKueue(t *testing.T) {
	cluster := clustertest.Start(t)
	kueue := filepath.Join(os.Getenv("OUTBOARD_CLUSTER"), "kueue")
	definitions, err := filepath.Glob(kueue + "-crds/*.yaml")
	if err != nil || len(definitions) == 0 {
		t.Skip("there is no Kueue: `cargo xtask kubernetes` builds it")
	}
	s := &stage{
		cluster: cluster, pool: pooltest.Start(t), folder: t.TempDir(), all: t,
		program: filepath.Join(os.Getenv("OUTBOARD_CLUSTER"), "outboard-dra"),
	}
	s.pool.Serve(t, "gpu1", 2)
	s.broker = s.pool.Client(t, "scheduler", "kubernetes")
	cluster.Node(t, "node1")
	cluster.Deploy(t, "../../deploy/kubernetes/dra")
	s.startController(t)
	for _, file := range definitions {
		cluster.Apply(t, file, "")
	}
	_, err = cluster.Admin.CoreV1().Namespaces().Create(t.Context(),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vision"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ours := replaced(t, "dra/kueue.yaml",
		`{name: outboard.dev/devices, nominalQuota: "8"}`,
		`{name: outboard.dev/devices, nominalQuota: "1"}`)
	pooltest.Within(t, "the API server knows Kueue's kinds", func() error {
		return cluster.Serves("kueue.x-k8s.io/v1beta2", "localqueues")
	})
	cluster.ApplyText(t, ours, "")
	s.startKueue(t, kueue, ours)

	s.templateIn(t, "vision", "part", "256Mi", "50")
	s.queued(t, "first")
	pod := made(t, cluster, "vision", "batch.kubernetes.io/job-name=first")
	lease := s.leases(t, 1)[0]
	if lease.Owner != "kubernetes.vision" {
		t.Errorf("the lease is %+v", lease)
	}
	s.queued(t, "second")
	s.isQueued(t, "second", "insufficient unused quota for outboard.dev/devices")

	s.endJob(t, "vision", "first", pod.Name)
	made(t, cluster, "vision", "batch.kubernetes.io/job-name=second")
	if next := s.leases(t, 1)[0]; next.Number == lease.Number {
		t.Errorf("the first job's lease is still there: %+v", next)
	}
}

// startKueue starts its controller with what the file's comment says of it.
func (s *stage) startKueue(t *testing.T, program, ours string) {
	t.Helper()
	// Its metrics have their certificate there, and nowhere else.
	certificates := "/etc/kueue/metrics/certs"
	s.cluster.CopyCertificate(t, certificates)
	text := fmt.Sprintf(kueueConfiguration, clustertest.FreePort(t), certificates)
	for _, line := range strings.Split(ours, "\n") {
		if strings.HasPrefix(line, "#   ") {
			text += strings.TrimPrefix(line, "#   ") + "\n"
		}
	}
	clustertest.Run(t, s.folder, program, "--config="+s.put(t, "kueue.yaml", text),
		"--kubeconfig="+s.cluster.Kubeconfig(t, "admin"),
		"--feature-gates=DynamicResourceAllocation=true,VisibilityOnDemand=false")
}

// queued makes a job of the queue, with a part of a device.
func (s *stage) queued(t *testing.T, name string) {
	t.Helper()
	little := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi"),
	}
	job := &batchapi.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "vision"},
		},
		Spec: batchapi.JobSpec{Suspend: ptr.To(true), Template: v1.PodTemplateSpec{
			Spec: v1.PodSpec{
				RestartPolicy: v1.RestartPolicyNever,
				ResourceClaims: []v1.PodResourceClaim{
					{Name: "gpu", ResourceClaimTemplateName: ptr.To("part")},
				},
				Containers: []v1.Container{{
					Name: "program", Image: "program",
					Resources: v1.ResourceRequirements{
						Requests: little, Claims: []v1.ResourceClaim{{Name: "gpu"}},
					},
				}},
			},
		}},
	}
	_, err := s.cluster.Admin.BatchV1().Jobs("vision").
		Create(t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// isQueued waits until Kueue says why a job waits.
func (s *stage) isQueued(t *testing.T, job, sentence string) {
	t.Helper()
	pooltest.Within(t, job+" waits for its quota", func() error {
		found, err := s.cluster.Admin.CoreV1().Events("vision").
			List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range found.Items {
			isOfJob := strings.Contains(event.InvolvedObject.Name, job)
			if isOfJob && strings.Contains(event.Message, sentence) {
				return nil
			}
		}
		return errors.New(fmt.Sprint("nothing says so: ", found.Items))
	})
	found, err := s.cluster.Admin.BatchV1().Jobs("vision").
		Get(t.Context(), job, metav1.GetOptions{})
	if err != nil || !*found.Spec.Suspend {
		t.Errorf("it has begun: %+v, %v", found, err)
	}
}
