package node_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/handover"
	"outboard.dev/dra/internal/node"
	"outboard.dev/dra/internal/pooltest"
)

// A container gets of the installation what `outboard cdi generate` gives it.
func TestContainersGetTheClientAsFromTheCommand(t *testing.T) {
	install, err := filepath.EvalSymlinks(pooltest.Install(t))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(filepath.Join(install, "bin/outboard"),
		"cdi", "generate", "--server", "gpu1.invalid")
	command.Env = []string{"OUTBOARD_CONFIG=none"}
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs specs.Spec
	if err := json.Unmarshal(text, &theirs); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	written, err := node.NewSpecifications(
		folder, install, "/usr/local/nvidia/lib:/usr/local/nvidia/lib64")
	if err != nil {
		t.Fatal(err)
	}
	id, err := written.Put("uid", t.TempDir(), &handover.Handover{
		Servers: []broker.Reach{{Name: "gpu1", Address: "gpu1:9470"}, {Name: "gpu2", Address: "gpu2:1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(folder))
	if err != nil {
		t.Fatal(err)
	}
	ours := cache.GetDevice(id)
	if ours == nil {
		t.Fatalf("there is no %s: %v", id, cache.GetErrors())
	}
	edits := ours.ContainerEdits
	for _, variable := range append(theirs.ContainerEdits.Env,
		"OUTBOARD_SERVER=gpu1:9470,gpu2:1", "OUTBOARD_SAY_LOST=1") {
		if !slices.Contains(edits.Env, variable) {
			t.Errorf("%s is not among %v", variable, edits.Env)
		}
	}
	if theirs.Version != ours.GetSpec().Version {
		t.Errorf("the command writes version %s", theirs.Version)
	}
	for _, mount := range theirs.ContainerEdits.Mounts {
		if !slices.ContainsFunc(edits.Mounts, func(own *specs.Mount) bool {
			return reflect.DeepEqual(own, mount)
		}) {
			t.Errorf("%+v is not mounted", mount)
		}
	}
	// Who has no installation is told so when it starts.
	if _, err := node.NewSpecifications(folder, t.TempDir(), ""); err == nil {
		t.Error("a client that is not there is given to containers")
	}
}
