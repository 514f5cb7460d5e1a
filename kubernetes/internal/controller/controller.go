// Package controller publishes a pool to the scheduler and takes leases for what it allocates.
package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/claims"
	"outboard.dev/dra/internal/keys"
	"outboard.dev/dra/internal/names"
	"outboard.dev/dra/internal/slices"
)

// Options are what an administrator says.
type Options struct {
	// OwnerPrefix and a claim's namespace are the owner of its lease.
	OwnerPrefix string
	// Group is the owners' group.
	Group string
	// Nodes are those from which the pool can be reached; nil means all.
	Nodes *v1.NodeSelector
	// Every is how often the broker is asked for its pool.
	Every time.Duration
	// Life is for how long a lease is good without being renewed.
	Life time.Duration
	// Patience is how long a device is asked for that is not free: servers need a moment to give up
	// a lease. Then the scheduler may choose another one.
	Patience time.Duration
}

// Controller is a running controller.
type Controller struct {
	options Options
	broker  *broker.Client
	cluster kubernetes.Interface
	root    *keys.Root
	// uid is the cluster's: purposes of leases begin with it.
	uid string
	// me is as whom the broker knows this controller.
	me     string
	claims cache.SharedIndexInformer
	queue  workqueue.TypedRateLimitingInterface[types.UID]
	held   held
	pool   atomic.Pointer[broker.Pool]
}

// byUID is the index of claims that leases are looked up by.
const byUID = "uid"

// workers is how many claims are seen to at a time.
const workers = 8

// New makes a controller.
func New(
	options Options, asked *broker.Client, cluster kubernetes.Interface, root *keys.Root,
) (*Controller, error) {
	informer := informers.NewSharedInformerFactory(cluster, 0).Resource().V1().ResourceClaims()
	c := &Controller{
		options: options, broker: asked, cluster: cluster, root: root,
		claims: informer.Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](
				500*time.Millisecond, 30*time.Second)),
	}
	err := c.claims.AddIndexers(cache.Indexers{byUID: func(found any) ([]string, error) {
		return []string{string(found.(*resourceapi.ResourceClaim).UID)}, nil
	}})
	if err != nil {
		return nil, err
	}
	_, err = c.claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.see,
		UpdateFunc: func(_, now any) { c.see(now) },
		DeleteFunc: c.see,
	})
	return c, err
}

func (c *Controller) see(found any) {
	if gone, isGone := found.(cache.DeletedFinalStateUnknown); isGone {
		found = gone.Obj
	}
	if claim, isClaim := found.(*resourceapi.ResourceClaim); isClaim {
		c.queue.Add(claim.UID)
	}
}

// Claim is the claim with that UID, or nil.
func (c *Controller) Claim(uid types.UID) *resourceapi.ResourceClaim {
	found, err := c.claims.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil || len(found) == 0 {
		return nil
	}
	return found[0].(*resourceapi.ResourceClaim)
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	system, err := c.cluster.CoreV1().Namespaces().Get(
		ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the cluster's name is the UID of its namespace kube-system: %w", err)
	}
	c.uid = string(system.UID)
	defer c.queue.ShutDown()
	go c.claims.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), c.claims.HasSynced) {
		return ctx.Err()
	}
	if err := c.meetBroker(ctx); err != nil {
		return err
	}
	published, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: names.Driver,
		KubeClient: c.cluster,
		Resources:  slices.Of(c.pool.Load(), c.options.Nodes, c.isOurs),
	})
	if err != nil {
		return err
	}
	defer published.Stop()
	for range workers {
		go wait.UntilWithContext(ctx, c.work, time.Second)
	}
	for _, claim := range c.claims.GetStore().List() {
		c.see(claim)
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) { c.look(ctx, published) }, c.options.Every)
	return nil
}

// meetBroker waits for a broker that lets us in. Until then nothing is published anew: what an
// earlier controller has said of the pool still stands.
func (c *Controller) meetBroker(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, c.options.Every, true,
		func(ctx context.Context) (bool, error) {
			me, err := c.broker.Me(ctx)
			if err == nil {
				c.me = me.Owner
				var pool *broker.Pool
				if pool, err = c.broker.Pool(ctx); err == nil {
					c.pool.Store(pool)
					return true, nil
				}
			}
			klog.FromContext(ctx).Error(err, "waiting for the broker")
			return false, nil
		})
}

// look asks for the pool, tells the scheduler, and sets right what differs from what is held.
func (c *Controller) look(ctx context.Context, published *resourceslice.Controller) {
	begin := time.Now()
	pool, err := c.broker.Pool(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "the pool cannot be seen")
		return
	}
	c.pool.Store(pool)
	published.Update(slices.Of(pool, c.options.Nodes, c.isOurs))
	live := map[string]bool{}
	for at := range pool.Leases {
		lease := &pool.Leases[at]
		if !c.isOurs(lease) || lease.Over != nil {
			continue
		}
		live[lease.Purpose] = true
		c.endUnlessWanted(ctx, lease)
	}
	for _, uid := range c.held.lost(live, begin) {
		c.queue.Add(uid)
	}
}

// isOurs says whether a lease is one that a controller of this cluster has asked for.
func (c *Controller) isOurs(lease *broker.Lease) bool {
	_, isOfCluster := uidOf(c.uid, lease.Purpose)
	return isOfCluster && lease.AskedBy == c.me
}

// endUnlessWanted ends a lease that no claim has: one was deleted while no controller ran.
func (c *Controller) endUnlessWanted(ctx context.Context, lease *broker.Lease) {
	uid, _ := uidOf(c.uid, lease.Purpose)
	if claims.Purpose(c.uid, c.Claim(uid)) == lease.Purpose {
		return
	}
	logger := klog.FromContext(ctx)
	if err := c.broker.End(ctx, lease.Purpose); err != nil {
		logger.Error(err, "a lease that no claim has cannot be given back", "lease", lease.Number)
		return
	}
	logger.Info("a lease that no claim has is given back", "lease", lease.Number, "claim", uid)
}
