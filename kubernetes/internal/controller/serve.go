package controller

import (
	"context"
	"errors"
	"fmt"
	"net"

	"outboard.dev/dra/internal/handover"
)

// Service is where nodes ask for leases.
type Service struct {
	// Listen is the address at which the controller listens.
	Listen string
	// Address is how nodes reach it; empty if they reach it where it listens.
	Address string
	// Namespace is the controller's and the nodes'.
	Namespace string
	// NodeAccount is the nodes' service account.
	NodeAccount string
}

// RunAndServe works and answers nodes until the context ends.
func (c *Controller) RunAndServe(ctx context.Context, service Service) error {
	listener, err := net.Listen("tcp", service.Listen)
	if err != nil {
		return err
	}
	own, certificate, err := handover.NewCertificate()
	if err != nil {
		return err
	}
	address := service.Address
	if address == "" {
		address = listener.Addr().String()
	}
	err = handover.Publish(ctx, c.cluster, service.Namespace, address, certificate)
	if err != nil {
		return fmt.Errorf("nodes cannot be told where the controller is: %w", err)
	}
	server := &handover.Server{
		Account: fmt.Sprintf("system:serviceaccount:%s:%s", service.Namespace, service.NodeAccount),
		Cluster: c.cluster, Holder: c,
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(server.Serve(ctx, listener, own)) }()
	if err := c.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
