package clustertest

import (
	"os"
	"strings"
	"testing"

	authenticationapi "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"outboard.dev/dra/internal/pooltest"
)

// Deploy puts into the cluster what `kubectl apply -k` would.
func (c *Cluster) Deploy(t testing.TB, folder string) {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range made.Resources() {
		content, err := found.Map()
		if err != nil {
			t.Fatal(err)
		}
		c.Create(t, &unstructured.Unstructured{Object: content})
	}
}

// Apply puts the objects of a file into a namespace; without one, where the file says.
func (c *Cluster) Apply(t testing.TB, file, namespace string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c.ApplyText(t, string(text), namespace)
}

// ApplyText does the same with what is in a file.
func (c *Cluster) ApplyText(t testing.TB, text, namespace string) {
	t.Helper()
	for _, document := range strings.Split(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if namespace != "" {
			object.SetNamespace(namespace)
		}
		c.Create(t, object)
	}
}

// Create makes an object of any kind. The API server refuses fields that it does not know.
func (c *Cluster) Create(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	any, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := restmapper.GetAPIGroupResources(
		discovery.NewDiscoveryClient(c.Admin.Discovery().RESTClient()))
	if err != nil {
		t.Fatal(err)
	}
	kind := object.GroupVersionKind()
	mapping, err := restmapper.NewDiscoveryRESTMapper(resources).
		RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		t.Fatal(err)
	}
	_, err = any.Resource(mapping.Resource).Namespace(object.GetNamespace()).Create(
		t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatalf("%s %s: %v", kind.Kind, object.GetName(), err)
	}
}

// Node makes a node that is ready, with labels KEY=VALUE.
func (c *Cluster) Node(t testing.TB, name string, labels ...string) {
	t.Helper()
	room := v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse("64"),
		v1.ResourceMemory: resource.MustParse("64Gi"),
		v1.ResourcePods:   resource.MustParse("100"),
	}
	made := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		made.Labels[key] = value
	}
	node, err := c.Admin.CoreV1().Nodes().Create(t.Context(), made, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status = v1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "Tests"},
		},
	}
	_, err = c.Admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// Token is one of a service account, as a pod on that node has it: for an audience, or for the API
// server.
func (c *Cluster) Token(t testing.TB, namespace, account, node string, audiences ...string) string {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-", Namespace: namespace},
		Spec: v1.PodSpec{
			ServiceAccountName: account, NodeName: node,
			Containers: []v1.Container{{Name: "c", Image: "outboard-dra"}},
		},
	}
	pooltest.Within(t, "the account has a pod", func() error {
		made, err := c.Admin.CoreV1().Pods(namespace).Create(
			t.Context(), pod, metav1.CreateOptions{})
		pod.Name, pod.UID = made.GetName(), made.GetUID()
		return err
	})
	return c.boundToken(t, pod, audiences...)
}

// boundToken is a pod's, for an audience or for the API server.
func (c *Cluster) boundToken(t testing.TB, pod *v1.Pod, audiences ...string) string {
	t.Helper()
	request := &authenticationapi.TokenRequest{Spec: authenticationapi.TokenRequestSpec{
		Audiences: audiences, ExpirationSeconds: ptr.To(int64(3600)),
		BoundObjectRef: &authenticationapi.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	made, err := c.Admin.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(
		t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}
