package handover

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	authenticationapi "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// nodeName is where a token that is bound to a pod says on which node that is.
const nodeName = "authentication.kubernetes.io/node-name"

// Holder has leases.
type Holder interface {
	Claim(uid types.UID) *resourceapi.ResourceClaim
	Handover(ctx context.Context, uid types.UID) (*Handover, error)
}

// Server hands leases over to the nodes on which they are used.
type Server struct {
	// Account is as whom nodes come: system:serviceaccount:NAMESPACE:NAME.
	Account string
	Cluster kubernetes.Interface
	Holder  Holder
}

// noError is a refusal with its status.
type noError struct {
	status   int
	sentence string
}

func (e *noError) Error() string { return e.sentence }

func no(status int, form string, values ...any) error {
	return &noError{status, fmt.Sprintf(form, values...)}
}

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener, own tls.Certificate) error {
	routes := http.NewServeMux()
	routes.HandleFunc("POST "+path+"{uid}", s.answer)
	routes.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{
		Handler:        http.MaxBytesHandler(routes, 1<<10),
		TLSConfig:      &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}},
		ReadTimeout:    10 * time.Second,
		WriteTimeout:   20 * time.Second,
		MaxHeaderBytes: 16 << 10,
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *Server) answer(writer http.ResponseWriter, request *http.Request) {
	found, err := s.handOver(request)
	var refused *noError
	writer.Header().Set("Content-Type", "application/json")
	switch {
	case errors.As(err, &refused):
		klog.FromContext(request.Context()).Info("a node gets no lease", "because", err)
		writer.WriteHeader(refused.status)
		_ = json.NewEncoder(writer).Encode(map[string]string{"error": refused.sentence})
	case err != nil:
		klog.FromContext(request.Context()).Error(err, "a node gets no lease")
		writer.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(writer).Encode(map[string]string{"error": "try again"})
	default:
		_ = json.NewEncoder(writer).Encode(found)
	}
}

func (s *Server) handOver(request *http.Request) (*Handover, error) {
	ctx := request.Context()
	node, err := s.nodeOf(ctx, request)
	if err != nil {
		return nil, err
	}
	uid := types.UID(request.PathValue("uid"))
	claim := s.Holder.Claim(uid)
	if claim == nil {
		return nil, no(http.StatusNotFound, "there is no claim %s", uid)
	}
	pod, err := s.podOn(ctx, node, claim)
	if err != nil {
		return nil, err
	}
	found, err := s.Holder.Handover(ctx, uid)
	if err != nil {
		return nil, no(http.StatusConflict, "%v", err)
	}
	found.User = userOf(pod)
	return found, nil
}

// nodeOf is the node whose plug-in asks.
func (s *Server) nodeOf(ctx context.Context, request *http.Request) (string, error) {
	token, isBearer := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		return "", no(http.StatusUnauthorized, "there is no token")
	}
	review := &authenticationapi.TokenReview{
		Spec: authenticationapi.TokenReviewSpec{Token: token, Audiences: []string{Audience}},
	}
	review, err := s.Cluster.AuthenticationV1().TokenReviews().Create(
		ctx, review, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	status := review.Status
	// An API server that knows no audiences says none.
	isForUs := len(status.Audiences) == 1 && status.Audiences[0] == Audience
	if !status.Authenticated || !isForUs || status.User.Username != s.Account {
		return "", no(http.StatusUnauthorized, "the token is not one of %s", s.Account)
	}
	if at := status.User.Extra[nodeName]; len(at) == 1 && at[0] != "" {
		return at[0], nil
	}
	return "", no(http.StatusForbidden, "the token is not bound to a pod on a node")
}

// podOn is a pod on that node for which the claim is reserved.
func (s *Server) podOn(
	ctx context.Context, node string, claim *resourceapi.ResourceClaim,
) (*v1.Pod, error) {
	for _, user := range claim.Status.ReservedFor {
		if user.APIGroup != "" || user.Resource != "pods" {
			continue
		}
		pod, err := s.Cluster.CoreV1().Pods(claim.Namespace).Get(ctx, user.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && pod.UID == user.UID && pod.Spec.NodeName == node {
			return pod, nil
		}
	}
	return nil, no(http.StatusForbidden, "claim %s is not in use on node %s", claim.UID, node)
}

// userOf is as whom the containers with claims run, if the pod says so.
func userOf(pod *v1.Pod) *int64 {
	for _, container := range pod.Spec.Containers {
		if context := container.SecurityContext; len(container.Resources.Claims) > 0 &&
			context != nil && context.RunAsUser != nil {
			return context.RunAsUser
		}
	}
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.RunAsUser
}
