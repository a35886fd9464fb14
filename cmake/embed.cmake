# lockstep_embed(TARGET HEADER NAMESPACE FILES…): each file as a constant of a generated source of the target, named after
# it: page.css is kPageCss, a std::string_view, declared by hand in HEADER.
function(lockstep_embed target header namespace)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded.cc)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  string(REPLACE ";" "," listed "${files}")
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${source} -DHEADER=${header} -DNAMESPACE=${namespace} -DFILES=${listed}
      -P ${CMAKE_SOURCE_DIR}/cmake/write_embedded.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/write_embedded.cmake
    VERBATIM)
  # (Nothing that is compiled with it could be checked before it is made.)
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()
