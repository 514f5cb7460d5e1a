package clustertest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"outboard.dev/dra/internal/pooltest"
)

// Cluster is a cluster without nodes.
type Cluster struct {
	// Admin may do everything.
	Admin kubernetes.Interface
	// Config is the same.
	Config *rest.Config
	folder string
}

// Start starts a cluster.
func Start(t testing.TB) *Cluster {
	t.Helper()
	from := programs(t)
	c := &Cluster{folder: t.TempDir()}
	etcd, peers, api := FreePort(t), FreePort(t), FreePort(t)
	Run(t, c.folder, filepath.Join(from, "etcd"), "--data-dir="+c.path("etcd"),
		"--listen-client-urls=http://"+local(etcd), "--advertise-client-urls=http://"+local(etcd),
		"--listen-peer-urls=http://"+local(peers), "--unsafe-no-fsync", "--log-level=warn")
	c.put(t, "tokens", "admin,admin,admin,system:masters\n"+
		"scheduler,system:kube-scheduler,system:kube-scheduler\n")
	key := c.put(t, "accounts.key", accountsKey(t))
	Run(t, c.folder, filepath.Join(from, "kube-apiserver"), "--etcd-servers=http://"+local(etcd),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", api),
		"--cert-dir="+c.path("certificates"), "--token-auth-file="+c.path("tokens"),
		"--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		// Nobody else tells the condition of the nodes that tests make.
		"--disable-admission-plugins=TaintNodesByCondition,Priority",
		"--endpoint-reconciler-type=none")
	c.Config = &rest.Config{
		Host: "https://" + local(api), BearerToken: "admin", QPS: 100, Burst: 200,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.path("certificates/apiserver.crt")},
	}
	pooltest.Within(t, "the API server is ready", func() (err error) {
		if c.Admin, err = kubernetes.NewForConfig(c.Config); err != nil {
			return err
		}
		return c.Admin.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
	common := []string{"--leader-elect=false", "--secure-port=0", "--kubeconfig"}
	Run(t, c.folder, append(append([]string{filepath.Join(from, "kube-scheduler")}, common...),
		c.Kubeconfig(t, "scheduler"))...)
	Run(t, c.folder, append(append([]string{filepath.Join(from, "kube-controller-manager")},
		common...), c.Kubeconfig(t, "admin"), "--root-ca-file="+c.Config.CAFile,
		"--controllers=resourceclaim-controller,"+
			"serviceaccount-controller,garbage-collector-controller,resourcequota-controller,"+
			"device-taint-eviction-controller,root-ca-certificate-publisher-controller,"+
			"deployment-controller,replicaset-controller,daemonset-controller,"+
			"job-controller")...)
	return c
}

func (c *Cluster) path(name string) string { return filepath.Join(c.folder, name) }

func (c *Cluster) put(t testing.TB, name, content string) string {
	t.Helper()
	if err := os.WriteFile(c.path(name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return c.path(name)
}

// CopyCertificate puts the API server's certificate into a folder, for another server of this
// machine.
func (c *Cluster) CopyCertificate(t testing.TB, folder string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"apiserver.crt": "tls.crt", "apiserver.key": "tls.key"} {
		content, err := os.ReadFile(c.path("certificates/" + from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, to), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Serves looks whether the API server has a kind of object.
func (c *Cluster) Serves(version, kind string) error {
	found, err := c.Admin.Discovery().ServerResourcesForGroupVersion(version)
	if err != nil {
		return err
	}
	for _, one := range found.APIResources {
		if one.Name == kind {
			return nil
		}
	}
	return fmt.Errorf("it has no %s", kind)
}

// Kubeconfig is a file by which the holder of a token reaches the cluster.
func (c *Cluster) Kubeconfig(t testing.TB, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: c.Config.Host, CertificateAuthority: c.Config.CAFile,
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file, err := os.CreateTemp(c.folder, "kubeconfig-*")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := clientcmd.WriteToFile(*config, file.Name()); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

func accountsKey(t testing.TB) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der := x509.MarshalPKCS1PrivateKey(key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der}))
}
