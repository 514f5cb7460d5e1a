package main

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/controller"
	"outboard.dev/dra/internal/keys"
)

func runController(ctx context.Context, arguments []string) error {
	flags, where := newFlags("controller")
	access := broker.Access{}
	flags.StringVar(&access.URL, "pool", variable("OUTBOARD_POOL", ""),
		"the broker, https://HOST, or all of them with commas between them")
	flags.StringVar(&access.Fingerprint, "pool-fingerprint",
		variable("OUTBOARD_POOL_FINGERPRINT", ""), "of the broker's certificate")
	flags.StringVar(&access.Authorities, "pool-ca", variable("OUTBOARD_POOL_CA", ""),
		"file of the authorities that have signed the broker's certificate")
	flags.StringVar(&access.TokenFile, "pool-token-file",
		variable("OUTBOARD_POOL_TOKEN_FILE", ""), "token of the role scheduler, this cluster's own")
	keyFile := flags.String("key-file", "", "32 random bytes in hexadecimal, from which keys come")
	ownerPrefix := flags.String("owner-prefix", "kubernetes.",
		"it and a claim's namespace are the owner of the lease")
	group := flags.String("group", "kubernetes", "the group of these owners")
	selector := flags.String("nodes", "",
		"label selector of the nodes from which the pool can be reached; without it, all")
	every := flags.Duration("every", 5*time.Second, "how often to ask for the pool")
	life := flags.Duration("life", 10*time.Minute, "how long a lease is good unless renewed")
	patience := flags.Duration("patience", 30*time.Second,
		"how long to ask for a device that is not free, before the scheduler chooses again")
	var service controller.Service
	flags.StringVar(&service.Listen, "listen", ":8443", "where nodes ask for leases")
	flags.StringVar(&service.Address, "address", "",
		"how nodes reach it; without it, where it listens")
	flags.StringVar(&service.NodeAccount, "node-account", "outboard-dra-node",
		"service account of the nodes")
	_ = flags.Parse(arguments)

	service.Namespace = *where.namespace
	nodes, err := nodeSelector(*selector)
	if err != nil {
		return err
	}
	asked, err := broker.New(access)
	if err != nil {
		return err
	}
	root, err := keys.Read(*keyFile)
	if err != nil {
		return err
	}
	cluster, err := where.client()
	if err != nil {
		return err
	}
	made, err := controller.New(controller.Options{
		OwnerPrefix: *ownerPrefix, Group: *group, Nodes: nodes,
		Every: *every, Life: *life, Patience: *patience,
	}, asked, cluster, root)
	if err != nil {
		return err
	}
	return made.RunAndServe(ctx, service)
}

// nodeSelector is a label selector as pools have it.
func nodeSelector(text string) (*v1.NodeSelector, error) {
	if text == "" {
		return nil, nil
	}
	parsed, err := labels.Parse(text)
	if err != nil {
		return nil, err
	}
	operators := map[selection.Operator]v1.NodeSelectorOperator{
		selection.Equals: v1.NodeSelectorOpIn, selection.DoubleEquals: v1.NodeSelectorOpIn,
		selection.In: v1.NodeSelectorOpIn, selection.NotEquals: v1.NodeSelectorOpNotIn,
		selection.NotIn: v1.NodeSelectorOpNotIn, selection.Exists: v1.NodeSelectorOpExists,
		selection.DoesNotExist: v1.NodeSelectorOpDoesNotExist,
		selection.GreaterThan:  v1.NodeSelectorOpGt, selection.LessThan: v1.NodeSelectorOpLt,
	}
	var term v1.NodeSelectorTerm
	requirements, _ := parsed.Requirements()
	for _, one := range requirements {
		term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{
			Key: one.Key(), Operator: operators[one.Operator()], Values: one.ValuesUnsorted(),
		})
	}
	return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}, nil
}
