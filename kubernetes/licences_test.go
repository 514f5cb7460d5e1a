package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// allowed are what texts of licences say that deny.toml allows for the crates, too.
var allowed = map[string]string{
	"Apache-2.0": "Version 2.0, January 2004",
	"MIT":        "Permission is hereby granted, free of charge, to any person obtaining a copy",
	"BSD":        "Redistribution and use in source and binary forms, with or without modification",
	"ISC":        "Permission to use, copy, modify, and/or distribute this software for any purpose",
}

// forbidden would bind those who pass the program on to more.
var forbidden = []string{"GNU GENERAL", "GNU LESSER", "GNU AFFERO", "Mozilla Public", "Eclipse Public"}

// module is where the sources of a module lie.
type module struct {
	Path, Dir string
	Main      bool
}

// modules are those of which the program consists.
func modules(t *testing.T) map[string]module {
	t.Helper()
	output, err := exec.Command("go", "list", "-deps", "-json=Module", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]module{}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var one struct{ Module *module }
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if one.Module != nil && !one.Module.Main {
			found[one.Module.Path] = *one.Module
		}
	}
}

func TestLicencesOfWhatTheProgramConsistsOf(t *testing.T) {
	found := modules(t)
	if len(found) < 20 {
		t.Fatalf("there are only %d modules", len(found))
	}
	for path, one := range found {
		files, err := filepath.Glob(filepath.Join(one.Dir, "LICENSE*"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s says no licence: %v", path, err)
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if why := judge(string(text)); why != "" {
				t.Errorf("%s, %s: %s", path, filepath.Base(file), why)
			}
		}
	}
}

// judge says what is wrong with a licence.
func judge(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	for _, name := range forbidden {
		if strings.Contains(text, name) {
			return "it is " + name
		}
	}
	for _, phrase := range allowed {
		if strings.Contains(text, phrase) {
			return ""
		}
	}
	return "it is none that is known"
}

func TestOtherLicencesAreFound(t *testing.T) {
	for _, text := range []string{"", "All rights reserved.", "GNU GENERAL PUBLIC LICENSE Version 3"} {
		if judge(text) == "" {
			t.Errorf("%q is allowed", text)
		}
	}
}
