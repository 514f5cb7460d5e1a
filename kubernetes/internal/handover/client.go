package handover

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// mostBytes bounds an answer: a lease has at most 64 KiB.
const mostBytes = 1 << 20

// Client asks the controller for leases, on a node.
type Client struct {
	Cluster   kubernetes.Interface
	Namespace string
	// TokenFile has this pod's token for [Audience].
	TokenFile string
}

// RefusedError is the controller's no.
type RefusedError struct{ sentence string }

func (e *RefusedError) Error() string { return e.sentence }

// Claim asks for the lease of a claim.
func (c *Client) Claim(ctx context.Context, uid types.UID) (*Handover, error) {
	// Each time: another controller has another certificate.
	told, err := c.Cluster.CoreV1().ConfigMaps(c.Namespace).Get(ctx, ConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("it is not known where the controller is: %w", err)
	}
	address := told.Data[AddressKey]
	known := x509.NewCertPool()
	if !known.AppendCertsFromPEM([]byte(told.Data[CertificateKey])) {
		return nil, fmt.Errorf("the ConfigMap %s has no certificate yet: does the controller run?",
			ConfigMap)
	}
	// It is read each time: the kubelet replaces it.
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, "https://"+address+path+string(uid), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: known, ServerName: name,
		},
		DisableKeepAlives: true,
	}
	answer, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("the controller does not answer: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostBytes))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		var refused struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal(text, &refused)
		return nil, &RefusedError{fmt.Sprintf("the controller gives no lease: %s", refused.Error)}
	}
	found := new(Handover)
	if err := json.Unmarshal(text, found); err != nil {
		return nil, fmt.Errorf("the controller's answer is not what this release reads: %w", err)
	}
	return found, nil
}
