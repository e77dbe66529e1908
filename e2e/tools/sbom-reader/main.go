// Reads bills of materials with the library that scanners use, and prints what they understand as JSON, one line per file.
//
// A document is also validated against the schema that comes with the library. Its directory is found through the sources that
// this program was built from.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/xeipuuv/gojsonschema"
)

type listing struct {
	Name   string   `json:"name"`
	Sha256 string   `json:"sha256"`
	Purls  []string `json:"purls"`
}

func main() {
	for _, path := range os.Args[1:] {
		found, err := read(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func read(path string) (*listing, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := validate(text); err != nil {
		return nil, err
	}
	return readCycloneDX(text)
}

func readCycloneDX(text []byte) (*listing, error) {
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return nil, err
	}
	if bom.Metadata == nil || bom.Metadata.Component == nil || bom.Components == nil {
		return nil, errors.New("no subject, or no components")
	}
	subject := bom.Metadata.Component
	found := &listing{Name: subject.Name, Purls: []string{}}
	if subject.Hashes != nil {
		for _, hash := range *subject.Hashes {
			if hash.Algorithm == cyclonedx.HashAlgoSHA256 {
				found.Sha256 = hash.Value
			}
		}
	}
	for _, component := range *bom.Components {
		if component.Scope != cyclonedx.ScopeExcluded {
			found.Purls = append(found.Purls, component.PackageURL)
		}
	}
	return found, nil
}

// validate checks a document against the published schema, without a connection.
func validate(text []byte) error {
	source, _ := runtime.FuncForPC(reflect.ValueOf(cyclonedx.NewBOM).Pointer()).FileLine(0)
	directory := filepath.Join(filepath.Dir(source), "schema")
	schemas := gojsonschema.NewSchemaLoader()
	for name, file := range map[string]string{
		"spdx.schema.json":     "spdx.schema.json",
		"jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		content, err := os.ReadFile(filepath.Join(directory, file))
		if err != nil {
			return err
		}
		if err := schemas.AddSchema("http://cyclonedx.org/schema/"+name, gojsonschema.NewBytesLoader(content)); err != nil {
			return err
		}
	}
	content, err := os.ReadFile(filepath.Join(directory, "bom-1.6.schema.json"))
	if err != nil {
		return err
	}
	schema, err := schemas.Compile(gojsonschema.NewBytesLoader(content))
	if err != nil {
		return err
	}
	result, err := schema.Validate(gojsonschema.NewBytesLoader(text))
	if err != nil {
		return err
	}
	if !result.Valid() {
		return fmt.Errorf("%v", result.Errors())
	}
	return nil
}
