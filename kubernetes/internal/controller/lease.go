package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/dra/internal/handover"
)

// Handover is what a node needs of a claim.
func (c *Controller) Handover(_ context.Context, uid types.UID) (*handover.Handover, error) {
	had, isThere := c.held.get(uid)
	if !isThere || had.grant == nil {
		return nil, fmt.Errorf("claim %s has no lease now", uid)
	}
	key, err := c.root.For(had.purpose)
	if err != nil {
		return nil, err
	}
	pem, err := key.PEM()
	if err != nil {
		return nil, err
	}
	return &handover.Handover{
		Number: had.grant.Number, Lease: had.grant.Token, Key: string(pem),
		Servers: had.grant.Servers, Expires: had.grant.Expires,
	}, nil
}
