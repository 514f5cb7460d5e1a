package clustertest

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/dra/internal/pooltest"
)

// volumes makes a pod's volumes as the kubelet does, and gives the folder of each.
func (c *Cluster) volumes(t testing.TB, pod *v1.Pod) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		folder := filepath.Join(t.TempDir(), volume.Name)
		switch {
		case volume.HostPath != nil:
			folder = volume.HostPath.Path
			if *volume.HostPath.Type == v1.HostPathDirectoryOrCreate {
				makeFolder(t, folder, 0o755)
			} else if found, err := os.Stat(folder); err != nil || !found.IsDir() {
				t.Fatalf("the node has no folder %s", folder)
			}
		case volume.EmptyDir != nil:
			makeFolder(t, folder, 0o777)
		default:
			makeFolder(t, folder, 0o755)
			c.fill(t, pod, folder, &volume)
		}
		found[volume.Name] = folder
	}
	return found
}

// fill writes what the API server has.
func (c *Cluster) fill(t testing.TB, pod *v1.Pod, folder string, volume *v1.Volume) {
	t.Helper()
	switch {
	case volume.Secret != nil:
		secret := c.secret(t, pod, volume.Secret.SecretName)
		for name, content := range secret.Data {
			// Its group reads it, if the pod has one.
			mode := os.FileMode(*volume.Secret.DefaultMode)
			if group := pod.Spec.SecurityContext.FSGroup; group != nil {
				mode |= 0o440
			}
			writeFor(t, pod, filepath.Join(folder, name), content, mode)
		}
	case volume.ConfigMap != nil:
		c.fillMap(t, pod, folder, volume.ConfigMap.Name)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			switch {
			case source.ServiceAccountToken != nil:
				var audiences []string
				if audience := source.ServiceAccountToken.Audience; audience != "" {
					audiences = append(audiences, audience)
				}
				token := c.boundToken(t, pod, audiences...)
				writeFor(t, pod, filepath.Join(folder, source.ServiceAccountToken.Path),
					[]byte(token), 0o600)
			case source.ConfigMap != nil:
				c.fillMap(t, pod, folder, source.ConfigMap.Name)
			case source.DownwardAPI != nil:
				for _, item := range source.DownwardAPI.Items {
					writeFor(t, pod, filepath.Join(folder, item.Path),
						[]byte(field(t, pod, item.FieldRef)), 0o644)
				}
			default:
				t.Fatalf("no such source is played: %+v", source)
			}
		}
	default:
		t.Fatalf("no such volume is played: %+v", volume)
	}
}

func (c *Cluster) fillMap(t testing.TB, pod *v1.Pod, folder, name string) {
	t.Helper()
	for key, content := range c.configMap(t, pod, name).Data {
		writeFor(t, pod, filepath.Join(folder, key), []byte(content), 0o644)
	}
}

func (c *Cluster) secret(t testing.TB, pod *v1.Pod, name string) *v1.Secret {
	t.Helper()
	found, err := c.Admin.CoreV1().Secrets(pod.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (c *Cluster) configMap(t testing.TB, pod *v1.Pod, name string) *v1.ConfigMap {
	t.Helper()
	var found *v1.ConfigMap
	pooltest.Within(t, "there is "+name, func() (err error) {
		found, err = c.Admin.CoreV1().ConfigMaps(pod.Namespace).
			Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	return found
}

func makeFolder(t testing.TB, path string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	// What t.TempDir makes is for its own user.
	for above := filepath.Dir(path); above != "/" && filepath.Base(above) != "tmp"; {
		if found, err := os.Stat(above); err == nil && found.Mode().Perm()&0o111 != 0o111 {
			_ = os.Chmod(above, found.Mode().Perm()|0o055)
		}
		above = filepath.Dir(above)
	}
}

// writeFor writes a file for the pod's user and group.
func writeFor(t testing.TB, pod *v1.Pod, path string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
	user, group := 0, 0
	context := pod.Spec.SecurityContext
	if context.FSGroup != nil {
		group = int(*context.FSGroup)
	}
	if context.RunAsUser != nil && mode == 0o600 {
		user = int(*context.RunAsUser)
	}
	if err := os.Chown(path, user, group); err != nil {
		t.Fatal(err)
	}
}
