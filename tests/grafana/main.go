// Reads dashboards as Grafana's own schema has them, and fails where one has a field that the schema does not know, or lacks one that it
// asks for.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// read takes a dashboard as the schema has it, and its panels with what each type of panel and of query adds.
func read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var read dashboard.Dashboard
	// Both answer with a list of what is wrong, which may have nothing in it.
	for _, err := range []error{read.UnmarshalJSONStrict(text), read.Validate()} {
		if err != nil && err.Error() != "" {
			return err
		}
	}
	var whole struct{ Panels []json.RawMessage }
	if err := json.Unmarshal(text, &whole); err != nil {
		return err
	}
	if len(read.Panels) == 0 || len(read.Panels) != len(whole.Panels) {
		return errors.New("panels are missing")
	}
	return nil
}

func main() {
	plugins.RegisterDefaultPlugins()
	failed := false
	for _, path := range os.Args[1:] {
		if err := read(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			failed = true
		}
	}
	if failed || len(os.Args) < 2 {
		os.Exit(1)
	}
	fmt.Printf("%d dashboards are as Grafana's schema has them\n", len(os.Args)-1)
}
