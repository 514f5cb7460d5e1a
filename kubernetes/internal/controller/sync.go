package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/claims"
)

// askAgain is how often the broker is asked again for a device that is not free.
const askAgain = time.Second

func (c *Controller) work(ctx context.Context) {
	for {
		uid, isOver := c.queue.Get()
		if isOver {
			return
		}
		after, err := c.sync(ctx, uid)
		switch {
		case err != nil:
			klog.FromContext(ctx).Error(err, "a claim has to wait", "claim", uid)
			c.queue.AddRateLimited(uid)
		default:
			c.queue.Forget(uid)
			if after > 0 {
				c.queue.AddAfter(uid, after)
			}
		}
		c.queue.Done(uid)
	}
}

// sync brings a claim's lease to where it is to be, and says when to look again.
func (c *Controller) sync(ctx context.Context, uid types.UID) (time.Duration, error) {
	claim := c.Claim(uid)
	purpose := claims.Purpose(c.uid, claim)
	if had, isThere := c.held.get(uid); isThere && had.purpose != purpose {
		if err := c.broker.End(ctx, had.purpose); err != nil {
			return 0, fmt.Errorf("a lease cannot be given back yet: %w", err)
		}
		klog.FromContext(ctx).Info("a lease is given back", "claim", uid)
		c.held.remove(uid)
	}
	if purpose == "" {
		return 0, nil
	}
	if had, isThere := c.held.get(uid); isThere && had.grant != nil {
		return c.keep(ctx, claim, had)
	}
	reason, isLeased := claims.Told(claim)
	switch {
	case isLeased:
		return c.find(ctx, claim, purpose)
	case reason == claims.ReasonRefused || reason == claims.ReasonEnded:
		return 0, nil
	default:
		return c.ask(ctx, claim, purpose)
	}
}

// keep renews a lease when half of its life is over.
func (c *Controller) keep(
	ctx context.Context, claim *resourceapi.ResourceClaim, had holding,
) (time.Duration, error) {
	if left := time.Until(had.renewAt()); left > 0 {
		// The cluster may not have been told yet.
		return left, c.tell(ctx, claim, granted(had.grant))
	}
	begin := time.Now()
	grant, err := c.broker.Renew(ctx, had.grant.Number)
	switch {
	case broker.IsUnknown(err) || broker.IsFinal(err):
		c.held.put(claim.UID, holding{purpose: had.purpose})
		return c.find(ctx, claim, had.purpose)
	case err != nil:
		return 0, fmt.Errorf("lease %d cannot be renewed yet: %w", had.grant.Number, err)
	}
	now := holding{purpose: had.purpose, grant: grant, since: begin}
	c.held.put(claim.UID, now)
	return max(time.Until(now.renewAt()), askAgain), nil
}

// find looks up the lease of a claim of which the cluster has been told that it has one. If it is
// over, somebody has ended it: no new one is asked for.
func (c *Controller) find(
	ctx context.Context, claim *resourceapi.ResourceClaim, purpose string,
) (time.Duration, error) {
	begin := time.Now()
	standing, err := c.broker.Standing(ctx, purpose)
	switch {
	case broker.IsUnknown(err) || err == nil && !standing.IsGranted():
		return 0, c.tell(ctx, claim, claims.Say{
			Reason:  claims.ReasonEnded,
			Message: "The lease is over. Delete the pod and its claim for new devices.",
		})
	case err != nil:
		return 0, err
	}
	now := holding{purpose: purpose, grant: &standing.Grant, since: begin}
	c.held.put(claim.UID, now)
	return max(time.Until(now.renewAt()), askAgain), nil
}

// ask asks the broker for what the scheduler has allocated.
func (c *Controller) ask(
	ctx context.Context, claim *resourceapi.ResourceClaim, purpose string,
) (time.Duration, error) {
	request, err := claims.Wanted(c.pool.Load(), claims.Ours(claim))
	if err != nil {
		return 0, c.tell(ctx, claim, refused(err))
	}
	key, err := c.root.For(purpose)
	if err != nil {
		return 0, err
	}
	request.Owner = c.options.OwnerPrefix + claim.Namespace
	request.Group = c.options.Group
	begin := time.Now()
	had, isThere := c.held.get(claim.UID)
	if !isThere {
		// Before it is asked for, so that it is given back whatever becomes of the answer.
		had = holding{purpose: purpose, since: begin}
		c.held.put(claim.UID, had)
	}
	standing, err := c.broker.Ask(ctx, broker.Ask{
		Request: *request, ClientKey: key.Thumbprint(), Purpose: purpose,
		LifeSeconds: uint32(c.options.Life / time.Second),
	})
	switch {
	case broker.IsNotNow(err) && begin.Sub(had.since) < c.options.Patience:
		say := claims.Say{Reason: claims.ReasonWaiting, Message: err.Error()}
		return askAgain, c.tell(ctx, claim, say)
	case broker.IsFinal(err):
		return 0, c.tell(ctx, claim, refused(err))
	case err != nil:
		told := c.tell(ctx, claim, claims.Say{Reason: claims.ReasonAway, Message: err.Error()})
		return 0, errors.Join(err, told)
	case !standing.IsGranted():
		// Who names devices does not wait in the broker's queue.
		return askAgain, nil
	}
	now := holding{purpose: purpose, grant: &standing.Grant, since: begin}
	c.held.put(claim.UID, now)
	klog.FromContext(ctx).Info("a lease is granted",
		"lease", standing.Number, "claim", klog.KObj(claim), "expires", standing.Expires)
	return max(time.Until(now.renewAt()), askAgain), c.tell(ctx, claim, granted(now.grant))
}

func granted(grant *broker.Grant) claims.Say {
	message := fmt.Sprintf("Lease %d of the pool.", grant.Number)
	return claims.Say{Leased: true, Reason: claims.ReasonGranted, Message: message}
}

func refused(err error) claims.Say {
	return claims.Say{Refused: true, Reason: claims.ReasonRefused, Message: err.Error()}
}

// tell writes it into the claim's status.
func (c *Controller) tell(
	ctx context.Context, claim *resourceapi.ResourceClaim, say claims.Say,
) error {
	now := claim.DeepCopy()
	if !claims.Apply(now, say) {
		return nil
	}
	_, err := c.cluster.ResourceV1().ResourceClaims(claim.Namespace).
		UpdateStatus(ctx, now, metav1.UpdateOptions{})
	// An event follows with what it is now.
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
